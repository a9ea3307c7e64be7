"""Runs the cleaning step as the agent would, and prints what came of it."""
import json
import os
import sys

sys.dont_write_bytecode = True

import firstlight_eraser  # noqa: E402
import firstlight_samples  # noqa: E402
import firstlight_writer  # noqa: E402
from ironic_python_agent import errors  # noqa: E402

firstlight_writer.PATIENCE, firstlight_writer.PAUSE = 0, 0
firstlight_eraser.BLOCK = os.environ.get("BLOCK", firstlight_eraser.BLOCK)
try:
    os.close(os.open(os.environ["DISK"], os.O_RDONLY | os.O_DIRECT))
except OSError:  # a file system in memory
    firstlight_samples.DIRECT = 0
eraser = firstlight_eraser.Eraser()
step = eraser.get_clean_steps({}, [])[0]
assert step["priority"] == 0, "it would be run without being asked for"
try:
    getattr(eraser, step["step"])({"driver_internal_info": {}}, [], disks=json.loads(os.environ["DISKS"]))
except errors.CleaningError as e:
    print("failed: %s" % e)
