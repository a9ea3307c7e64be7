class ProcessExecutionError(Exception):
    """What the agent raises when a program fails: it is no OSError."""
