"""Runs the deploy step as the agent would, and prints what came of it."""
import sys

sys.dont_write_bytecode = True

import firstlight_writer  # noqa: E402
from ironic_python_agent import errors  # noqa: E402

firstlight_writer.PATIENCE = firstlight_writer.PAUSE = float(sys.argv[1])
try:
    firstlight_writer.Manager().write_image({}, [], {})
except errors.IncompatibleHardwareMethodError:
    print("written by the next manager")
except errors.DeploymentError as e:
    print("failed: %s" % e)
