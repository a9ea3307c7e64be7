"""What lies on a machine's disks, for the inspection.

The agent's inventory says what a disk is, not what it holds. The appliance writes to a disk
that holds data only with its owner's consent, so it must know. Nothing is written here.
"""

import glob
import hashlib
import json
import os
import subprocess
import sys

HEAD = 1 << 20  # bytes at the beginning of a disk that are read
DRIVE = 64 << 20  # the most that Ironic makes a config drive (ironic.common.images)
PVD = 16 << 11  # of the primary volume descriptor (ECMA-119, 8.4), in sectors of 2 KiB

# What earlier versions told every node to trust, also those that wrote no name of their site.
TRUST = b"/usr/local/share/ca-certificates/firstlight.crt"


def signatures(device):
    """Signatures on a device or file as wipefs tells them, by offset."""
    done = subprocess.run(["wipefs", "--no-act", "--json", device], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or "wipefs ended with %d" % done.returncode)
    found = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
    # The name of a device may be another one at the next boot. A GUID table's protective record (PMBR) says
    # nothing more than the table.
    return [
        {key: one.get(key) for key in ("type", "offset", "uuid", "label")}
        for one in found if one["type"] != "PMBR" or len(found) == 1
    ]


def metadata(text):
    """The instance's metadata in the bytes of a config drive, whose files are in one piece each."""
    end = text.find(b'"metal3-name"')
    start = text.rfind(b"{", 0, end) if end >= 0 else -1
    while start >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(text[start:start + HEAD].decode("utf-8", "replace"))
            if "metal3-name" in found:
                return found
        except ValueError:
            pass
        start = text.rfind(b"{", 0, start)
    return {}


def mark(device):
    """Who installed the system that this config drive belongs to; None if no appliance of ours."""
    with open(device, "rb") as f:
        text = f.read(DRIVE)
    data = metadata(text)
    site = data.get("firstlight-site", "")
    if not data or not site and TRUST not in text:
        return None
    made = text[PVD + 813:PVD + 829] if text[PVD + 1:PVD + 6] == b"CD001" else b""
    when = made.decode() if made.isdigit() else ""
    return {
        "site": str(site), "node": str(data["metal3-name"]), "id": str(data.get("uuid", "")),
        "time": when and "%s-%s-%s %s:%s" % (when[:4], when[4:6], when[6:8], when[8:10], when[10:12]),
    }


def holds(disk, partitions=()):
    """What a disk and its partitions hold: kinds, fingerprint, mark; no kinds on a blank one.

    A disk that cannot be read is not blank, and neither is one that begins with something
    that libblkid does not know. The fingerprint stands for all that was seen.
    """
    kinds, seen, whose = [], [], None
    try:
        for device in [disk, *partitions]:
            found = signatures(device)
            kinds += [one["type"] for one in found if one["type"] not in kinds]
            seen.append(found)
            if whose is None and any(one.get("label") == "config-2" for one in found):
                whose = mark(device)
        with open(disk, "rb") as f:
            head = f.read(HEAD)
    except OSError as e:
        return {"kinds": [], "unreadable": str(e)}
    if not kinds and head.strip(b"\0"):
        kinds = ["data of an unknown kind"]
    if not kinds:
        return {"kinds": []}
    facts = json.dumps([seen, whose], sort_keys=True).encode() + head
    here = {"kinds": list(dict.fromkeys(kinds)), "fingerprint": "data-" + hashlib.sha256(facts).hexdigest()[:12]}
    if whose:
        here["mark"] = whose
    return here


def partitions(name):
    """The devices of a disk's partitions."""
    parts = glob.glob("/sys/class/block/%s/*/partition" % os.path.basename(os.path.realpath(name)))
    return sorted("/dev/" + part.split("/")[-2] for part in parts)


def look(name):
    """What the disk of this name and its partitions hold at this moment."""
    return holds(os.path.realpath(name), partitions(name))


def collect(data, failures):
    """Collector of ironic-python-agent (ironic_python_agent.inspector.collectors)."""
    data["firstlight_contents"] = {disk.name: look(disk.name) for disk in data["inventory"]["disks"]}


if __name__ == "__main__":
    print(json.dumps({path: holds(path) for path in sys.argv[1:]}))
