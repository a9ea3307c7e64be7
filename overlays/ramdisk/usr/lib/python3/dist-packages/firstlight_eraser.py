"""Erases the disks that the appliance names, and no other.

The agent's own cleaning step erases every disk that it finds. Here each disk is named by its serial
number or WWN, the appliance is asked once more right before the first byte, and is told how the disk
was erased. How a disk is erased is the agent's: by the drive itself (NVMe format, ATA secure erase),
else by overwriting it.
"""

import glob
import json
import os
import re

from ironic_python_agent import errors
from ironic_python_agent import hardware
from ironic_python_agent import utils
from oslo_concurrency import processutils
from oslo_config import cfg

import firstlight
import firstlight_samples
import firstlight_writer

BLOCK = "/sys/class/block"
EDGE = 1 << 20  # bytes at both ends of a disk; a drive that erased itself may read as anything


class Recorder(hardware.GenericHardwareManager):
    """The agent's own manager, which remembers how it erased a disk."""

    method = ""
    unattached = 0  # namespaces of the drive that no system sees; -1: not known

    def _nvme_erase(self, block_device):
        try:
            hidden = unattached(block_device.name)
        except (processutils.ProcessExecutionError, OSError, ValueError, KeyError, TypeError) as e:
            self.unattached = -1
            raise errors.BlockDeviceEraseError("its drive does not tell its namespaces: %s" % e)
        self.unattached = len(hidden)
        others = namespaces(block_device.name) + ["namespace %d, not attached" % n for n in hidden]
        if others:  # many drives format all of their namespaces, whichever is named (NVMe, Identify Controller, FNA)
            raise errors.BlockDeviceEraseError("its drive also has %s" % ", ".join(others))
        done = super()._nvme_erase(block_device)
        self.method = "nvme-format" if done else self.method
        return done

    def _ata_erase(self, block_device):
        done = super()._ata_erase(block_device)
        self.method = "ata-secure-erase" if done else self.method
        return done

    def _shred_block_device(self, node, block_device):
        done = super()._shred_block_device(node, block_device)
        self.method = "overwrite" if done else self.method
        return done


class Eraser:
    """A hardware manager (ironic_python_agent.hardware_managers) of one cleaning step."""

    def evaluate_hardware_support(self):
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def get_version(self):
        return {"name": "firstlight_eraser", "version": "1"}

    def get_clean_steps(self, node, ports):
        """The step is run when it is asked for, never on its own."""
        return [{
            "step": "erase_disks", "priority": 0, "interface": "deploy", "reboot_requested": False, "abortable": True,
            "argsinfo": {"disks": {"description": "objects with name, serial and wwn", "required": True}},
        }]

    def erase_disks(self, node, ports, disks):
        """Cleaning step: erases these disks, one after the other."""
        devices = hardware.dispatch_to_managers("list_block_devices")
        for device in [find(devices, disk) for disk in disks]:  # all are found before one is written to
            erase(node, device, len(devices) - 1)


def namespaces(name):
    """The other namespaces of an NVMe drive, which the agent takes for disks of their own."""
    drive = re.match(r"nvme\d+n", os.path.basename(name))
    found = [os.path.basename(path) for path in glob.glob("%s/%s*" % (BLOCK, drive.group()))] if drive else []
    return sorted(n for n in found if re.fullmatch(r"nvme\d+n\d+", n) and n != os.path.basename(name))


def unattached(name):
    """Numbers of the namespaces of an NVMe drive that are not attached: nothing of them can be read or written.

    Only a drive that manages namespaces has such (NVMe, Identify Controller, OACS bit 3); others do not know the list.
    """
    drive = json.loads(utils.execute("nvme", "id-ctrl", name, "-o", "json")[0])
    if not drive["oacs"] & 8:
        return []
    lists = [utils.execute("nvme", "list-ns", name, *more, "-o", "json")[0] for more in (["--all"], [])]
    there, attached = [{one["nsid"] for one in json.loads(text)["nsid_list"]} for text in lists]
    return sorted(there - attached)


def find(devices, disk):
    """The one device that has the serial number and WWN of a disk; its name, if it has neither."""
    want = (disk.get("serial") or "", disk.get("wwn") or "")
    if any(want):
        fit = [d for d in devices if (d.serial or "", d.wwn or "") == want]
    else:
        fit = [d for d in devices if os.path.realpath(d.name) == os.path.realpath(disk["name"])]
    if len(fit) != 1:
        raise errors.CleaningError("%d disks have the serial number %r and the WWN %r" % (len(fit), *want))
    return fit[0]


def users(name):
    """The devices that a disk and its partitions are parts of, as the kernel has put them together."""
    parts = [os.path.basename(part) for part in firstlight.partitions(name) + [os.path.realpath(name)]]
    found = [path for part in parts for path in glob.glob("%s/%s/holders/*" % (BLOCK, part))]
    return sorted({"/dev/" + os.path.basename(path) for path in found})


def erase(node, device, others):
    """Erases a device, if the appliance agrees, and tells it how; others is how many more the server has."""
    asked = {
        "disk": {"name": device.name, "serial": device.serial or "", "wwn": device.wwn or ""},
        "holds": firstlight.look(device.name), "bytes": device.size, "others": others,
    }
    api = cfg.CONF.api_url.split(",")[0].rstrip("/")
    refused = firstlight_writer.ask(api + "/erase", asked)
    if refused:
        raise errors.CleaningError(refused)
    # Of a drive that is locked nothing can be read.
    before = {} if asked["holds"].get("unreadable") else firstlight_samples.take(device.name, starts(device.name))

    # The agent has assembled RAID arrays. One that goes on would write to its other disks what is left on this one, and
    # its superblock to this one afterwards.
    for array in users(device.name):
        utils.execute("mdadm", "--stop", array)
    # The agent passes over members of a RAID. A drive that lost its power while it erased itself is locked: nothing can
    # be read of it before the agent has unlocked it, which is the first that it does.
    for part in [] if asked["holds"].get("unreadable") else firstlight.partitions(device.name) + [device.name]:
        utils.execute("wipefs", "--all", "--force", part)
    if users(device.name):
        raise errors.CleaningError("%s is still used by %s" % (device.name, ", ".join(users(device.name))))
    # A drive that cannot erase itself after all is overwritten.
    info = dict(node.get("driver_internal_info") or {}, agent_continue_if_secure_erase_failed=True)
    recorder = Recorder()
    recorder.erase_block_device(dict(node, driver_internal_info=info), device)
    if not recorder.method:
        raise errors.CleaningError("the agent passed over %s" % device.name)
    check(device.name, before, recorder.method)
    zero(device.name)

    holds = firstlight.look(device.name)
    if holds["kinds"] or holds.get("unreadable"):
        raise errors.CleaningError("%s is not blank after it was erased: %s" % (device.name, holds))
    refused = firstlight_writer.ask(api + "/erased", {
        "disk": asked["disk"], "holds": holds, "method": recorder.method, "compared": len(before),
        "unattached": recorder.unattached,
    })
    if refused:
        raise errors.CleaningError(refused)


def starts(name):
    """The first bytes of a disk's partitions, from the beginning of the disk."""
    found = []
    for part in firstlight.partitions(name):
        with open("%s/%s/start" % (BLOCK, os.path.basename(part))) as f:
            found.append(int(f.read()) << 9)  # in 512 bytes, whatever the drive's sectors are (sysfs-block)
    return found


def check(name, before, method):
    """Compares blocks that held data with what they hold after a disk was erased."""
    try:
        same = firstlight_samples.same(name, before)
    except OSError as e:
        raise errors.CleaningError("%s cannot be read after it was erased (%s): %s; destroy it" % (name, method, e))
    if same:
        raise errors.CleaningError(
            "%s still holds what it held: %d of %d blocks read as before it was erased (%s); destroy it"
            % (name, same, len(before), method))


def zero(name):
    """Writes zeros to both ends of a disk, where partition tables and volume managers are."""
    with open(name, "r+b") as f:
        size = f.seek(0, os.SEEK_END)
        for start in (0, max(0, size - EDGE)):
            f.seek(start)
            f.write(bytes(min(EDGE, size)))
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # what is read next comes from the drive
