import os
import types

from ironic_python_agent import errors


class HardwareSupport:
    SERVICE_PROVIDER = 3


def scramble(name, kept=0, until=0):
    """Writes what a drive reads as that has thrown away its key, but between two offsets."""
    with open(name, "r+b") as f:
        size = os.path.getsize(name)
        f.write(os.urandom(kept))
        f.seek(until)
        f.write(os.urandom(size - until))


class GenericHardwareManager:
    """The agent's own manager."""

    def get_os_install_device(self, permit_refresh):
        return os.environ["DISK"]

    def list_block_devices(self):
        disks = [types.SimpleNamespace(
            name=os.environ["DISK"], serial=os.environ.get("SERIAL", "SERIAL"), wwn=None,
            size=os.path.getsize(os.environ["DISK"]))]
        if os.environ.get("OTHER"):
            disks.append(types.SimpleNamespace(name=os.environ["OTHER"], serial=os.environ.get("OTHER_SERIAL", "OTHER"), wwn=None))
        return disks

    def _nvme_erase(self, block_device):
        """LIES are the MiB between which the drive leaves everything as it is; an honest one has none."""
        if "nvme" not in os.environ.get("DRIVE_CAN", ""):
            return False
        scramble(block_device.name, *[int(n) << 20 for n in (os.environ.get("LIES") or "0 0").split()])
        return True

    def _ata_erase(self, block_device):
        if os.path.exists(os.environ.get("LOCKED", "")):
            os.remove(os.environ["LOCKED"])
            scramble(block_device.name)
            return True
        return False

    def _shred_block_device(self, node, block_device):
        assert node["driver_internal_info"]["agent_continue_if_secure_erase_failed"]
        if os.environ.get("DRIVE_CAN") == "pretend":
            return True
        with open(block_device.name, "r+b") as f:
            f.write(bytes(os.path.getsize(block_device.name)))
        return True

    def erase_block_device(self, node, block_device):
        print("erased by the agent")
        if os.environ.get("DRIVE_CAN") == "nothing":
            return
        try:
            is_nvme = "nvme" in os.environ.get("DRIVE_CAN", "") or os.path.basename(block_device.name).startswith("nvme")
            if is_nvme and self._nvme_erase(block_device) or not is_nvme and self._ata_erase(block_device):
                return
        except errors.BlockDeviceEraseError as e:
            print("falling back: %s" % e)
        self._shred_block_device(node, block_device)

    def write_image(self, node, ports, image_info, configdrive=None):
        print("written by the next manager")
        if configdrive:
            print(configdrive)


MANAGERS = [GenericHardwareManager()]


def dispatch_to_managers(method, *args, **kwargs):
    for manager in MANAGERS:
        if getattr(manager, method, None):
            try:
                return getattr(manager, method)(*args, **kwargs)
            except errors.IncompatibleHardwareMethodError:
                pass
