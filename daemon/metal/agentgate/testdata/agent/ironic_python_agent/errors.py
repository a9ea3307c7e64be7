class DeploymentError(Exception):
    pass


class IncompatibleHardwareMethodError(Exception):
    pass
