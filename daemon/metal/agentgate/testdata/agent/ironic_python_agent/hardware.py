import os
import types


class HardwareSupport:
    SERVICE_PROVIDER = 3


def dispatch_to_managers(method, **kwargs):
    disk = types.SimpleNamespace(name=os.environ["DISK"], serial="SERIAL", wwn=None)
    return {"get_os_install_device": disk.name, "list_block_devices": [disk]}[method]
