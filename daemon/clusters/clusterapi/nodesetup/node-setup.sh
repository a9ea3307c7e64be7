#!/bin/sh
# Makes a machine that was installed with a plain Debian a node, by the cloud-init of Cluster API and nothing else:
#
#	node-setup install    before kubeadm: Kubernetes and images from the appliance, and its time
#	node-setup float      before kubeadm, on a control plane: the endpoint's address is on a node that serves
#	node-setup network    after kubeadm, on a control plane: the first one makes the pods' network
#
# It is the appliance's; docs/cluster-api.md walks through it.
set -eu

# Where the appliance is reached, the likeliest first.
addresses="{{range $i, $a := .Addresses}}{{if $i}} {{end}}{{$a}}{{end}}"

own=/etc/firstlight
sources=/etc/apt/sources.list.d/firstlight.sources
known=/run/firstlight-packages # is there when apt knows what the appliance has
init=/run/kubeadm/kubeadm.yaml
join=/run/kubeadm/kubeadm-join-config.yaml

# say writes to the log of cloud-init what is begun, and when.
say() { echo "node-setup $(date -u +%FT%T.%3NZ) $*"; }

# appliance prints the address that answers. cloud-init runs this once: it waits for as long as it takes.
appliance() {
	while :; do
		for a in $addresses; do
			if timeout 5 bash -c "exec 3<>/dev/tcp/$a/{{.HTTPPort}}" 2>/dev/null; then
				echo "$a"
				return
			fi
		done
		sleep 2
	done
}

# trust writes what the appliance is known by, and where it is.
trust() {
	mkdir -p $own "$(dirname $sources)" /etc/containerd/certs.d/_default /etc/systemd/timesyncd.conf.d
	cat >$own/ca.crt <<'END'
{{.Authority}}END
	cat >$own/packages.asc <<'END'
{{.PackagesKey}}END
	cat >$sources <<END
# The appliance's packages. Their index is signed; its date is that of the appliance's clock.
Types: deb
URIs: http://$1:{{.HTTPPort}}/debian
Suites: {{.Suite}}
Components: main
Signed-By: $own/packages.asc
Check-Date: no
END
	cat >/etc/containerd/certs.d/_default/hosts.toml <<END
server = "https://$1:{{.RegistryPort}}"

[host."https://$1:{{.RegistryPort}}"]
  capabilities = ["pull", "resolve"]
  ca = "$own/ca.crt"
END
	cat >/etc/systemd/timesyncd.conf.d/60-firstlight.conf <<END
# The appliance has the time also where nothing else has.
[Time]
NTP=$1
END
	systemctl try-restart systemd-timesyncd.service || true
}

# get installs packages from the appliance and from nowhere else, again until they are there.
get() {
	export DEBIAN_FRONTEND=noninteractive
	only="-o Dir::Etc::sourcelist=$sources -o Dir::Etc::sourceparts=- -o DPkg::Lock::Timeout=600"
	until { [ -e $known ] || apt-get --quiet $only update && touch $known; } &&
		apt-get --quiet --yes --no-install-recommends $only install "$@"; do
		rm -f $known
		sleep 5
	done
}

# isControlPlane reports whether kubeadm is to make the machine one.
isControlPlane() { [ -e $init ] || grep -qs '^controlPlane:' $join; }

# pull gets images while packages are installed: kubeadm and the kubelet find them, and get what is missing themselves.
# The first one has the layer that others share.
pull() {
	get="timeout 600 ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d"
	first=$1
	shift
	for try in 1 2 3 4 5; do
		if $get "$first" >/dev/null && printf '%s\n' "$@" | xargs -n 1 -P 3 $get >/dev/null; then
			say "images are there"
			return
		fi
		sleep 2
	done
}

# address tells kubeadm and the kubelet which address is theirs. With a default route they find it; without one
# it is that by which the appliance is reached.
address() {
	if ip route show default | grep -q . || [ -e /etc/default/kubelet ]; then
		return
	fi
	self=$(ip -4 -o route get "$1" | sed -n 's/.* src \([0-9.]*\).*/\1/p')
	mkdir -p /etc/default
	echo "KUBELET_EXTRA_ARGS=--node-ip=$self" >/etc/default/kubelet
	for file in $init $join; do
		[ ! -e $file ] || sed -i "s/localAPIEndpoint: {}/localAPIEndpoint: {advertiseAddress: $self}/" $file
	done
}

# patches is what kubeadm lays over what it writes: a machine under load is slow, not lost.
patches() {
	mkdir -p $own/patches
{{range .Patches}}	cat >$own/patches/{{.Name}} <<'END'
{{.Text}}END
{{end}}}

# weight puts pods before services on a small machine, as the installer does on its nodes: an API server that starts
# beside services that always find something to do does not meet its own deadlines.
weight() {
	[ "$(nproc)" -gt {{.SmallNode}} ] || systemctl set-property system.slice CPUWeight={{.ServiceWeight}} || true
}

# proxy is kube-proxy as its image can be: by nftables. Cluster API has no field for it.
proxy() {
	if [ ! -e $init ] || grep -q 'kind: KubeProxyConfiguration' $init; then
		return
	fi
	cat >>$init <<'END'
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
# The kernel's own limits; what a namespace may not change is not asked for.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
END
}

# value prints a value of the first of kubeadm's files that has the key.
value() {
	cat $init $join 2>/dev/null | sed -n "s/^ *$1: *\"\{0,1\}\([^\" ]*\)\"\{0,1\} *\$/\1/p" | head -n 1
}

# endpoint prints the address and port of the API.
endpoint() {
	at=$(value controlPlaneEndpoint)
	echo "${at:-$(value apiServerEndpoint)}"
}

# names takes from the name server what it would end itself for: to ask others where there is nobody to ask.
names() {
	for file in /run/systemd/resolve/resolv.conf /etc/resolv.conf; do
		if [ -e $file ]; then
			! grep -q '^nameserver' $file || return 0
			break
		fi
	done
	config=$(kubectl -n kube-system get configmap coredns --ignore-not-found -o yaml) || return 1
	[ -z "$config" ] || echo "$config" | sed '/forward \. /,/}/d' | kubectl replace -f -
}

# answers has the name server ready as soon as it answers, as on the installer's nodes: by kubeadm it is asked every ten
# seconds, and the cluster waits for that.
answers() {
	server=$(kubectl -n kube-system get deployment coredns --ignore-not-found -o name) || return 1
	[ -z "$server" ] || kubectl -n kube-system patch "$server" \
		--patch 'spec: {template: {spec: {containers: [{name: coredns, readinessProbe: {periodSeconds: 2}}]}}}'
}

# network prints the objects of the pods' network.
network() {
	at=$(endpoint)
	sed -e "s|@PODS@|$(value podSubnet)|; s|@SERVICES@|$(value serviceSubnet)|" \
		-e "s|@HOST@|${at%:*}|; s|@PORT@|${at##*:}|" <<'END'
{{.Network}}END
}

case "${1:-}" in
install)
	say "looking for the appliance"
	appliance=$(appliance)
	trust "$appliance"
	address "$appliance"
	patches
	weight
	proxy
	packages="kubelet kubeadm kubectl" images="{{.WorkerImages}}"
	if isControlPlane; then
		packages="$packages firstlight-node" images="{{.ControlPlaneImages}}"
	fi
	# containerd is started again with its new configuration, which ends what it pulls: it comes before the images.
	say "installing containerd"
	get firstlight-containerd
	say "installing packages and images"
	pull $images &
	get $packages
	say "packages are there"
	wait
	;;
float)
	command -v firstlight-node >/dev/null || get firstlight-node
	say "letting the endpoint float"
	mkdir -p $own
	echo "ENDPOINT=$(endpoint)" >$own/float
	systemctl enable --now firstlight-float.service
	;;
network)
	[ -e $init ] || exit 0
	export KUBECONFIG=/etc/kubernetes/admin.conf
	say "making the network"
	until names && answers && network | kubectl apply -f -; do
		sleep 2
	done
	say "the network is made"
	;;
*)
	echo "usage: node-setup install | float | network" >&2
	exit 2
	;;
esac
