import subprocess


def get_ssl_client_options(conf):
    return conf.cafile, None


def execute(*command):
    subprocess.run(command, check=True, capture_output=True)
