class DeploymentError(Exception):
    pass


class IncompatibleHardwareMethodError(Exception):
    pass


class CleaningError(Exception):
    pass


class BlockDeviceEraseError(Exception):
    pass
