#!/bin/bash
export IRONIC_INTERFACE="eth2"
export DOCKER_REGISTRY_MIRRORS="http://mirror-1.example.org:5000 http://mirror-2.example.org:5000"
export IRONIC_ENABLE_DHCP="no"
HOST_IP=$(hostname -I | cut -d ' ' -f 1)
export MY_ADDRESS=$HOST_IP
if [[ -f /etc/icn.conf ]]; then
  source /etc/icn.conf
fi
curl -O http://example.org/extra.sh
RACK=7
