import subprocess

from oslo_concurrency import processutils


def get_ssl_client_options(conf):
    return conf.cafile, None


def execute(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise processutils.ProcessExecutionError("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout, done.stderr
