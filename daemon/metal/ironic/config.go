// Package ironic runs OpenStack Ironic on the appliance: it renders the service's
// configuration, keeps its credentials and certificate, and describes its pod. Ironic
// itself is Debian's, one process, without a message queue; the only DHCP and TFTP on
// the provisioning network is the appliance's own (package pxe), so Ironic is told to
// leave both alone.
package ironic

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"text/template"
	"time"

	"firstlight.dev/firstlight/pxe"
)

// Config is what the rendered ironic.conf depends on.
type Config struct {
	Addr     netip.Addr    // of the appliance on the provisioning network, where the gate answers agents
	Inner    netip.Addr    // where Gate answers pods: Addr, or another one where that is of IPv6
	HTTPPort int           // of package pxe's HTTP server, which serves HTTPRoot
	Boot     time.Duration // longest time a machine may need from power on to its agent's first call

	// Forwarder is the proxy on loopback (HOST:PORT) by which everything with TLS is spoken to. To BMCs it shows a
	// certificate of the appliance's own authority, which is the only one that Ironic trusts for them.
	Forwarder string

	// KernelArgs are appended to every ramdisk's kernel command line (console, debugging).
	// White space separates them; a line break is refused.
	KernelArgs string
}

// Paths inside the pod. The appliance mounts its own folders there.
const (
	StateDir = "/var/lib/ironic"        // database; on DATA
	HTTPRoot = "/srv/http"              // what the conductor writes for machines that boot
	ConfDir  = "/etc/ironic-conf"       // ironic.conf, htpasswd
	TLSDir   = "/etc/ironic-tls"        // tls.crt, tls.key, ca.crt
	Port     = 6385                     // of the API on loopback, and of the gate on the provisioning network
	hostName = "firstlight"             // conductor's name in the database: never the box's, which may change
	archive  = "/var/log/ironic/deploy" // LogDir
)

// Loopback is where the API listens, and nowhere else.
func Loopback() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// Endpoint is the API's address for programs on this machine's own network.
func Endpoint() string { return fmt.Sprintf("https://%s", netip.AddrPortFrom(Loopback(), Port)) }

// Gate is the address at which package agentgate answers pods, which have the password.
func (c Config) Gate() string { return fmt.Sprintf("https://%s", netip.AddrPortFrom(c.Inner, Port)) }

// What agents are told, whatever they boot from.
const (
	collectors = "ipa-inspection-collectors=default,contents,devices"
	retries    = "ipa-image-download-connection-retries=2"
)

// InspectionArgs are those of a ramdisk's kernel that has its agent inspect the machine. The boot server puts the token
// of its boot into them.
func (c Config) InspectionArgs() []string {
	return []string{"ipa-inspection-callback-url=" + c.AgentURL() + "/v1/continue_inspection", collectors}
}

// DiscArgs are those of the kernel on a disc with a token. A disc is for whatever Ironic wants of the agent: an
// inventory that nobody waits for is refused, and the agent goes on (ironic_python_agent, agent.py).
func (c Config) DiscArgs(token pxe.Secret) []string {
	args := append(c.InspectionArgs(), "ipa-api-url="+c.AgentURL(), retries, "panic=30")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "${token}", token.Reveal())
	}
	return append(args, strings.Fields(c.KernelArgs)...)
}

// AgentURL is what an agent is told of the API: the gate's address on the provisioning network. The boot server puts the
// token of its boot into it.
func (c Config) AgentURL() string {
	return fmt.Sprintf("https://%s/b/${token}", netip.AddrPortFrom(c.Addr, Port))
}

// Files is the URL below which HTTPRoot is served.
func (c Config) Files() string {
	return fmt.Sprintf("http://%s", netip.AddrPortFrom(c.Addr, uint16(c.HTTPPort)))
}

// Render returns ironic.conf (oslo.config's INI). Every value that is not Ironic's default
// stands there with the reason.
func (c Config) Render() ([]byte, error) {
	if strings.ContainsAny(c.KernelArgs, "\n\r\x00") {
		return nil, fmt.Errorf("kernel arguments %q hold a line break", c.KernelArgs)
	}
	if !c.Addr.IsValid() || !c.Inner.IsValid() || c.HTTPPort <= 0 || c.HTTPPort > 0xffff {
		return nil, fmt.Errorf(
			"ironic needs the address and HTTP port of the provisioning network, has %v and %d", c.Addr, c.HTTPPort,
		)
	}

	var out bytes.Buffer
	err := conf.Execute(&out, map[string]any{
		"Gate": c.Gate(), "Loopback": Loopback(), "AgentURL": strings.ReplaceAll(c.AgentURL(), "$", "$$"),
		"Files": c.Files(), "Addr": c.Addr, "Port": Port, "Collectors": collectors, "Retries": retries,
		"Args": strings.ReplaceAll(c.KernelArgs, "$", "$$"), "Boot": int(c.Boot.Seconds()), "FastTrack": int(FastTrack.Seconds()),
		"StateDir": StateDir, "HTTPRoot": HTTPRoot, "ConfDir": ConfDir, "TLSDir": TLSDir,
		"Host": hostName, "Archive": archive,
	})
	return out.Bytes(), err
}

var conf = template.Must(template.New("ironic.conf").Option("missingkey=error").Parse(`[DEFAULT]
auth_strategy = http_basic
http_basic_auth_user_file = {{.ConfDir}}/htpasswd
host = {{.Host}}
my_ip = {{.Addr}}
# One process is API and conductor: no message queue.
rpc_transport = none
use_stderr = true
# A connection that stays open holds one of the API's threads: an agent's, as long as its server is looked
# at or installed. With the default of 100 the agents of the first hundred servers shut out all the others.
wsgi_default_pool_size = 4096
# In seconds; agents call every 18 to 36. Who connects and says nothing does not keep a thread for 15 minutes.
client_socket_timeout = 120
state_path = {{.StateDir}}
pybasedir = /usr/lib/python3/dist-packages/ironic
enabled_hardware_types = ipmi,redfish
# Of images. For BMCs an authority of the appliance's counts: see REQUESTS_CA_BUNDLE of the pod.
webserver_verify_ca = /etc/ssl/certs/ca-certificates.crt
enabled_bios_interfaces = no-bios
enabled_boot_interfaces = ipxe,redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = direct,ramdisk,custom-agent
enabled_firmware_interfaces = no-firmware,redfish
enabled_inspect_interfaces = agent,no-inspect
enabled_management_interfaces = ipmitool,redfish,noop
enabled_network_interfaces = noop
enabled_power_interfaces = ipmitool,redfish
enabled_raid_interfaces = no-raid,agent,redfish
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor,ipmitool,redfish
default_boot_interface = ipxe
default_deploy_interface = direct
default_firmware_interface = no-firmware
default_inspect_interface = agent
default_network_interface = noop

[agent]
image_download_source = http
# The agent makes a certificate at each boot and sends it with its first heartbeat; from
# then on it is pinned.
require_tls = true
deploy_logs_collect = on_failure
deploy_logs_local_path = {{.Archive}}

[api]
# What is for everybody on the provisioning network is behind the gate.
host_ip = {{.Loopback}}
port = {{.Port}}
# Links in answers: they lead through the gate, which is where pods come from.
public_endpoint = {{.Gate}}
enable_ssl_api = true
api_workers = 1
ramdisk_heartbeat_timeout = 60

[conductor]
automated_clean = true
# An agent gets its token once per boot. One that lost it calls without an answer until these end.
deploy_callback_timeout = {{.Boot}}
clean_callback_timeout = {{.Boot}}
inspect_timeout = {{.Boot}}
sync_power_state_interval = 30
check_provision_state_interval = 15
# A server that somebody switched off stays off until its owner says otherwise.
force_power_state_during_sync = false
power_state_change_timeout = 60
soft_power_off_timeout = 60
send_sensor_data = false

[database]
connection = sqlite:///{{.StateDir}}/ironic.sqlite

[deploy]
# BMCs get the address of a disc as it is: it is put together while they read it, for each node another one.
ramdisk_image_download_source = http
http_url = {{.Files}}
http_root = {{.HTTPRoot}}
default_boot_option = local
default_boot_mode = uefi
# An agent that is up continues with the next step without another boot.
fast_track = true
fast_track_timeout = {{.FastTrack}}
# Cleaning removes partition tables and file system signatures, it does not overwrite disks.
erase_devices_priority = 0
erase_devices_metadata_priority = 10

[dhcp]
# The appliance's own DHCP server is the only one on the provisioning network.
dhcp_provider = none

[inspector]
# A node without a MAC is switched on to boot from the network, without a script of its own. Its inventory names the
# address of its BMC, by which it is found.
require_managed_boot = false
power_off = false
# The others are the appliance's own: which disks hold data, and which PCI devices there are, with their drivers.
extra_kernel_params = {{.Collectors}}
callback_endpoint_override = {{.AgentURL}}
hooks = $default_hooks,parse-lldp

[inventory]
data_backend = database

[ipmi]
# ipmitool's own retries: one login per try. Ironic's would be 28 with a wrong password,
# enough to lock an account. The whole command may take long: a slow BMC, or an appliance that is
# busy with a hundred other things.
use_ipmitool_retries = true
min_command_interval = 1
command_retry_timeout = 90
cipher_suite_versions = 3,17

[redfish]
# One BMC that hangs must not stall the power states of all.
connection_attempts = 2

[json_rpc]
auth_strategy = http_basic
http_basic_auth_user_file = {{.ConfDir}}/htpasswd
host_ip = 127.0.0.1
port = 8089

[oslo_messaging_notifications]
driver = noop

[pxe]
tftp_server = {{.Addr}}
tftp_root = {{.StateDir}}/tftp
# Next to what is served, because a machine's kernel and ramdisk are hard links to it.
tftp_master_path = {{.HTTPRoot}}/master
images_path = {{.StateDir}}/images
instance_master_path = {{.StateDir}}/master_images
ipxe_timeout = 0
# An image with a wrong digest is fetched twice, not nine times. A kernel that fails starts again.
kernel_append_params = {{.Retries}} panic=30{{with .Args}} {{.}}{{end}}

[service_catalog]
auth_type = none
# What an agent is told. The boot server puts the token of each boot in its place; "$$" stands for "$" here.
endpoint_override = {{.AgentURL}}

[ssl]
cert_file = {{.TLSDir}}/tls.crt
key_file = {{.TLSDir}}/tls.key
`))
