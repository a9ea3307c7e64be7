#!/bin/bash
#Ironic Metal3 settings for provisioning network
export IRONIC_INTERFACE=${IRONIC_INTERFACE:-"eno2"}
IPMI_LAN=10.30.0
#Interface to which Ironic/IPMI traffic is connected
export IRONIC_IPMI_INTERFACE="eno1"
export IRONIC_IPMI_INTERFACE_IP="${IPMI_LAN}.2"
export POD_NETWORK_CIDR=10.200.0.0/16
export IRONIC_PROVISIONING_INTERFACE_IP=172.22.0.1
export DHCP_RANGE=172.22.0.10,172.22.0.100
export BUILD_DIR=/opt/icn/build-dir
export KUBE_VERSION=v1.15.0
