"""Runs the deploy step as the agent would, and prints what came of it."""
import os
import sys

sys.dont_write_bytecode = True

import firstlight_writer  # noqa: E402
from ironic_python_agent import errors  # noqa: E402
from ironic_python_agent import hardware  # noqa: E402

firstlight_writer.PATIENCE, firstlight_writer.PAUSE = float(sys.argv[1]), 0
hardware.MANAGERS.insert(0, firstlight_writer.Manager())
try:
    hardware.dispatch_to_managers("write_image", {}, [], image_info={}, configdrive=os.environ.get("DRIVE"))
except errors.DeploymentError as e:
    print("failed: %s" % e)
