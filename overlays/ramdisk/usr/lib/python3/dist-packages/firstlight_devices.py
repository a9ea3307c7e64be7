"""A machine's PCI devices, for the inspection.

The appliance tells from them what a server is fit for (SR-IOV, QuickAssist, GPU, FPGA), and which
network card or disk controller has no driver, or a driver without its firmware. All is read from
sysfs and from the modules' files; nothing is loaded and nothing is written.
"""

import glob
import json
import os
import subprocess
import sys

SYSFS = "/sys/bus/pci/devices"
FIRMWARE = "/usr/lib/firmware"
# Classes by their first byte: storage, network, display, processor, processing accelerator.
CLASSES = ("01", "02", "03", "0b", "12")
# A system works without a driver of the others.
NEEDED = ("01", "02")


def value(device, name):
    """What a file of sysfs says; "" if there is none."""
    try:
        with open(os.path.join(device, name)) as f:
            return f.read().strip()
    except OSError:
        return ""


def lines(*command):
    """The lines that a program prints; none if it fails, as modprobe does where no module fits."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def missing(module):
    """Files that a module names and that are not there. The kernel takes them plain and compressed."""
    return [
        name for name in lines("modinfo", "-F", "firmware", module)
        if not any(glob.glob(os.path.join(FIRMWARE, name) + end) for end in ("", ".xz", ".zst"))
    ]


def device(path):
    """What is to be reported of a device; None if nothing is."""
    kind = value(path, "class")[2:]
    functions = value(path, "sriov_totalvfs")
    # A virtual function waits for who asks for it.
    if kind[:2] not in CLASSES or os.path.exists(os.path.join(path, "physfn")):
        return None
    driver = os.path.realpath(os.path.join(path, "driver"))
    found = {
        "address": os.path.basename(path), "class": kind,
        "vendor": value(path, "vendor")[2:], "device": value(path, "device")[2:],
        "driver": os.path.basename(driver) if os.path.exists(driver) else "",
    }
    if functions.isdigit() and int(functions):
        found["vfs"] = int(functions)
    if not found["driver"] and kind[:2] in NEEDED:
        found["modules"] = sorted(set(lines("modprobe", "--resolve-alias", value(path, "modalias"))))
        found["missing"] = sorted({name for module in found["modules"] for name in missing(module)})
    return found


def devices(sysfs=SYSFS):
    """All devices that are to be reported, by address."""
    found = (device(path) for path in sorted(glob.glob(os.path.join(sysfs, "*"))))
    return [one for one in found if one]


def collect(data, failures):
    """Collector of ironic-python-agent (ironic_python_agent.inspector.collectors)."""
    data["firstlight_devices"] = devices()


def describe(one):
    """What is wrong with a device, in half a sentence, in the words of the appliance (assets/inspection); "" if nothing is."""
    if "modules" not in one:
        return ""
    what = "{} {}:{} at {} ".format(
        "NIC" if one["class"][:2] == "02" else "disk controller", one["vendor"], one["device"], one["address"])
    if not one["modules"]:
        return what + "has no driver"
    if one["missing"]:
        return what + "has no firmware " + one["missing"][0]
    return what + "is not driven by " + ", ".join(one["modules"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--broken"]:  # for the console of a machine that reaches no one
        for text in filter(None, map(describe, devices(*sys.argv[2:]))):
            print(text)
    else:
        print(json.dumps(devices(*sys.argv[1:])))
