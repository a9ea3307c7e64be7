def get_ssl_client_options(conf):
    return conf.cafile, None
