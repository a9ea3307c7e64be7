"""What lies on a machine's disks, for the inspection.

The agent's inventory says what a disk is, not what it holds. The appliance writes to a disk
that holds data only with its owner's consent, so it must know. Nothing is written here.
"""

import glob
import json
import os
import subprocess
import sys

HEAD = 1 << 20  # bytes at the beginning of a disk that are read


def kinds(device):
    """Signatures on a device or file: libblkid's names, outermost first."""
    done = subprocess.run(["wipefs", "--no-act", "--json", device], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or "wipefs ended with %d" % done.returncode)
    found = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
    # A GUID table's protective record (PMBR) says nothing more.
    return list(dict.fromkeys(one["type"] for one in found if one["type"] != "PMBR" or len(found) == 1))


def holds(disk, partitions=()):
    """What a disk and its partitions hold; nothing for a blank one.

    A disk that cannot be read is not blank, and neither is one that begins with something
    that libblkid does not know.
    """
    try:
        found = kinds(disk)
        for part in partitions:
            found += [kind for kind in kinds(part) if kind not in found]
        if not found:
            with open(disk, "rb") as f:
                if f.read(HEAD).strip(b"\0"):
                    found = ["data of an unknown kind"]
    except OSError as e:
        return ["unreadable: %s" % e]
    return found


def collect(data, failures):
    """Collector of ironic-python-agent (ironic_python_agent.inspector.collectors)."""
    data["firstlight_disks"] = found = {}
    for disk in data["inventory"]["disks"]:
        here = os.path.realpath(disk.name)
        parts = glob.glob("/sys/class/block/%s/*/partition" % os.path.basename(here))
        found[disk.name] = holds(here, sorted("/dev/" + part.split("/")[-2] for part in parts))


if __name__ == "__main__":
    print(json.dumps({path: holds(path) for path in sys.argv[1:]}))
