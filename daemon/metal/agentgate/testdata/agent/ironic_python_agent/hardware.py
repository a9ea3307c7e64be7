import os
import types

from ironic_python_agent import errors


class HardwareSupport:
    SERVICE_PROVIDER = 3


class Generic:
    """The agent's own manager."""

    def get_os_install_device(self, permit_refresh):
        return os.environ["DISK"]

    def list_block_devices(self):
        return [types.SimpleNamespace(name=os.environ["DISK"], serial="SERIAL", wwn=None)]

    def write_image(self, node, ports, image_info, configdrive=None):
        print("written by the next manager")
        if configdrive:
            print(configdrive)


MANAGERS = [Generic()]


def dispatch_to_managers(method, *args, **kwargs):
    for manager in MANAGERS:
        if getattr(manager, method, None):
            try:
                return getattr(manager, method)(*args, **kwargs)
            except errors.IncompatibleHardwareMethodError:
                pass
