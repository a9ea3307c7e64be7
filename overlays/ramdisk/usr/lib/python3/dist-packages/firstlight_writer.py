"""Asks the appliance right before a disk is written to, and makes the SSH host key of what is written.

Between an inspection and an installation lie minutes to months, in which a disk may be changed for
another, or written to. What it holds is read once more, and the appliance says whether that may be
lost. Without its word nothing is written.

The installed system's host key is made here, so that its private half is on this server alone. The
appliance gets the public half with the question and knows the system by it.
"""

import base64
import gzip
import json
import os
import ssl
import time
import urllib.error
import urllib.request

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from ironic_python_agent import errors
from ironic_python_agent import hardware
from ironic_python_agent import utils
from oslo_config import cfg

import firstlight

PATIENCE = 600  # seconds in which the appliance may be starting again
PAUSE = 5  # seconds between two questions

# Where the private half goes in user data, and how it is written there (assets/hostkey): in a string of YAML in double
# quotes for cloud-init, in base64 for Ignition.
PLACES = {
    b"FIRSTLIGHT-HOST-KEY".ljust(394, b"-"): lambda private: private.replace(b"\n", b"\\n"),
    b"FIRSTLIGHT/HOST/KEY".ljust(516, b"/"): base64.b64encode,
}


class Manager:
    """A hardware manager (ironic_python_agent.hardware_managers) of one step.

    What it has no method for, and what it raises IncompatibleHardwareMethodError for, the agent's own
    manager does.
    """

    passing = False  # the next manager is to write what this one has prepared

    def evaluate_hardware_support(self):
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def get_version(self):
        """The agent lists its managers in each inventory."""
        return {"name": "firstlight_writer", "version": "2"}

    def write_image(self, node, ports, image_info, configdrive=None):
        """Deploy step: the image is written by the next manager, if the appliance agrees."""
        if self.passing:
            raise errors.IncompatibleHardwareMethodError()
        name = hardware.dispatch_to_managers("get_os_install_device", permit_refresh=True)
        configdrive, key = fill(configdrive)
        asked = dict(question(name), hostKey=key)
        refused = ask(cfg.CONF.api_url.split(",")[0].rstrip("/") + "/disk", asked)
        if refused:
            raise errors.DeploymentError(refused)
        self.passing = True
        try:
            return hardware.dispatch_to_managers(
                "write_image", node, ports, image_info=image_info, configdrive=configdrive)
        finally:
            self.passing = False


def fill(configdrive):
    """A config drive with a new host key in its place, and the public half; "" if it has no place.

    Ironic sends the drive as base64 of a compressed ISO 9660 image, whose files are in one piece each.
    """
    if not configdrive or configdrive.startswith(("http://", "https://")):
        return configdrive, ""
    drive = gzip.decompress(base64.b64decode(configdrive))
    if not any(place in drive for place in PLACES):
        return configdrive, ""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    for place, encode in PLACES.items():
        encoded = encode(private)
        if len(encoded) != len(place):
            raise errors.DeploymentError("a host key has %d bytes, its place %d" % (len(encoded), len(place)))
        drive = drive.replace(place, encoded)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return base64.b64encode(gzip.compress(drive)).decode(), public.decode()


def question(name):
    """Which disk is to be written to, and what it holds at this moment."""
    here = os.path.realpath(name)
    devices = hardware.dispatch_to_managers("list_block_devices")
    disk = next((d for d in devices if os.path.realpath(d.name) == here), None)
    return {
        "disk": {"name": name, "serial": getattr(disk, "serial", None) or "", "wwn": getattr(disk, "wwn", None) or ""},
        "holds": firstlight.look(name),
    }


def ask(url, body):
    """Why the disk may not be written to; None if it may."""
    verify, _ = utils.get_ssl_client_options(cfg.CONF)
    trust = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", "Accept": "application/json"})
    why, until = "", time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
                if answer.status == 204:
                    return None
                why = "the appliance answers with %d" % answer.status
        except urllib.error.HTTPError as e:
            why = sentence(e)
            if e.code < 500:
                return why
        except OSError as e:
            why = "the appliance does not answer: %s" % e
        if time.monotonic() > until:
            return "nothing was written, for " + why
        time.sleep(PAUSE)


def sentence(e):
    """What the appliance says of a refusal."""
    try:
        return json.loads(e.read())["error_message"]["faultstring"]
    except (ValueError, KeyError, TypeError, OSError):
        return "the appliance answers with %d" % e.code
