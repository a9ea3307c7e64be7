package vault

import (
	"path"
	"strings"
)

// Secret is a secret of the appliance, or several of one kind. docs/security.md has the list as a table, a test holds
// both to what an appliance has.
type Secret struct {
	Name    string
	Owner   string   // who mints it, or brings it
	Files   []string // on the appliance; a * is any name, and a / at the end all that is below
	Objects []string // NAMESPACE/NAME of Secrets in the API; a * is any name
	Used    string   // where
	Rotated string   // how it is replaced
	Away    bool     // an away copy has it
}

// Ways in which a secret is replaced that several have in common.
const (
	renewed   = "automatically, a year at most after it was made"
	bySite    = "edit site.yaml, firstlightd reload"
	withWhole = "with what it is part of"
	never     = "not without a new appliance"
)

// Secrets are all of the appliance's.
func Secrets() []Secret {
	const data, pki = "/var/lib/firstlight", "/etc/kubernetes/pki"
	return []Secret{
		{Name: "authority", Owner: "appliance", Files: []string{data + "/ca/ca.key", data + "/ca/next.key"}, Away: true,
			Used: "signs the certificates of all that the appliance serves by TLS; ramdisks trust it, and containerd of nodes for the registry", Rotated: "firstlightd rotate authority"},
		{Name: "authority for BMCs", Owner: "appliance", Files: []string{data + "/ca/bmc/ca.key"}, Away: true,
			Used: "signs what Ironic is shown in place of BMCs' certificates; Ironic alone trusts it", Rotated: "remove its folder, systemctl restart firstlightd"},
		{Name: "certificates", Owner: "appliance", Files: []string{data + "/ca/*.key", "/run/firstlight/registry/server.pem"}, Away: true,
			Objects: []string{"metal3/ironic-tls", "metal3/operator-ironic-ca", "metal3/operator-webhook-cert",
				"metal3/*-webhook-service-cert", "artifacts/*",
				"capi-system/*-webhook-service-cert", "capi-kubeadm-bootstrap-system/*-webhook-service-cert",
				"capi-kubeadm-control-plane-system/*-webhook-service-cert"},
			Used: "Ironic, gate of the agents, registry, page, upload API, webhooks", Rotated: renewed},
		{Name: "log-in to nodes", Owner: "appliance", Files: []string{data + "/ssh/id_ed25519", data + "/ssh/id_ed25519.*"}, Away: true,
			Used: "SSH to every node as root: verification, clusters", Rotated: "firstlightd rotate nodes"},
		{Name: "host key", Owner: "appliance", Files: []string{data + "/ssh/ssh_host_ed25519_key", data + "/ssh/ssh_host_ed25519_key.next"}, Away: true,
			Used: "SSH to the appliance: the key that it shows, and the next one", Rotated: "firstlightd rotate host-key"},
		{Name: "host keys of nodes", Owner: "appliance, earlier versions", Files: []string{data + "/ssh/hosts/*"}, Away: true,
			Used: "SSH of nodes that those installed", Rotated: "install the node again"},
		{Name: "password of Ironic", Owner: "appliance", Files: []string{data + "/secret/ironic.credentials"}, Away: true,
			Objects: []string{"metal3/ironic-config", "metal3/ironic-credentials", "metal3/operator-ironic-auth"},
			Used:    "Ironic's API: operator, daemon, the command baremetal", Rotated: "firstlightd rotate ironic"},
		{Name: "password of the stand-in BMC", Owner: "appliance", Files: []string{data + "/secret/standinbmc/"}, Away: true,
			Used: "Ironic, about nodes without a BMC", Rotated: "firstlightd rotate standin-bmc"},
		{Name: "key of packages", Owner: "appliance", Files: []string{data + "/secret/packages.key", data + "/secret/packages.key.*"}, Away: true,
			Used: "signs the Debian repository; apt of nodes trusts it for that", Rotated: "firstlightd rotate packages"},
		{Name: "logins of BMCs", Owner: "site, or who applied the host",
			Files: []string{data + "/secret/hosts/*.json", data + "/secret/discovered.json", "/var/lib/ironic/ironic.sqlite*"}, Away: true,
			Objects: []string{"metal3/*-bmc-secret"}, Used: "Ironic, pre-flight",
			Rotated: "firstlightd rotate bmc; or edit site.yaml, firstlightd reload"},
		{Name: "passwords of BMCs", Owner: "appliance", Files: []string{data + "/secret/bmc/*.json"}, Away: true,
			Used: "BMCs that got another password than the site says: one file for each account", Rotated: "firstlightd rotate bmc"},
		{Name: "refused logins of BMCs", Owner: "appliance", Files: []string{data + "/secret/bmc-refusals.json"}, Away: true,
			Used: "salted digests: what a BMC refused is not tried again", Rotated: withWhole},
		{Name: "logins of images", Owner: "who applied the host", Files: []string{data + "/secret/logins/"}, Away: true,
			Used: "first SSH to an image with a default user", Rotated: "edit the Secret"},
		{Name: "user data of nodes", Owner: "site", Objects: []string{"metal3/*-user-data", "metal3/*-network-data", "metal3/*-meta-data", "metal3/firstlight-node"},
			Used: "config drives: hashes of passwords, public keys", Rotated: bySite},
		{Name: "site", Owner: "owner", Away: true,
			Files: []string{"/run/firstlight/site/site.yaml", "/usr/share/firstlight/site.yaml", data + "/secret/site-history/*.yaml"},
			Used:  "logins of BMCs, users of nodes, keys of stores and of the source", Rotated: bySite},
		{Name: "Kubernetes' authorities", Owner: "appliance",
			Files: []string{pki + "/ca.key", pki + "/sa.key", pki + "/front-proxy-ca.key", pki + "/etcd/ca.key", pki + "/next.json"}, Away: true,
			Used: "certificates and tokens of the appliance's own Kubernetes", Rotated: "firstlightd rotate kubernetes"},
		{Name: "Kubernetes' certificates", Owner: "appliance", Files: []string{pki + "/*.key", pki + "/etcd/*.key", "/etc/kubernetes/*.conf", "/var/lib/kubelet/pki/"},
			Used: "API server, kubelet, etcd, their clients, kubectl as root", Rotated: renewed},
		{Name: "objects of Kubernetes", Owner: "appliance", Files: []string{"/var/lib/etcd/"},
			Used: "every Secret of the API is in it, not encrypted", Rotated: withWhole},
		{Name: "files of pods", Owner: "kubelet", Files: []string{"/var/lib/kubelet/pods/"},
			Used: "what pods were given of Secrets, and their tokens", Rotated: withWhole},
		{Name: "kubeconfigs of clusters", Owner: "cluster", Files: []string{"/opt/kud/multi-cluster/*/artifacts/admin.conf"}, Away: true,
			Objects: []string{"*/*-kubeconfig"}, Used: "whoever runs a cluster", Rotated: "firstlightd rotate cluster"},
		{Name: "log-in to nodes of a cluster", Owner: "cluster", Objects: []string{"bpa/ssh-key-secret-*", "*/ssh-key-secret"},
			Used: "SSH to the cluster's nodes, by its installer", Rotated: "delete the Secret: the operator mints another and brings it to the nodes"},
		{Name: "recovery key, public half", Owner: "appliance, or site", Files: []string{data + "/away.recipient"},
			Used: "seals away copies; opens none", Rotated: "firstlightd backup --recipient, or edit site.yaml"},
	}
}

// Namespaces are those in which all Secrets are the appliance's.
func Namespaces() []string {
	return []string{
		"kube-system", "metal3", "bpa", "artifacts", "capi-system", "capi-kubeadm-bootstrap-system", "capi-kubeadm-control-plane-system",
	}
}

// OfFile is the secret that a file is of; false: it is on no list.
func OfFile(file string) (Secret, bool) {
	return find(func(s Secret) []string { return s.Files }, file)
}

// OfObject is the secret that a Secret of the API, NAMESPACE/NAME, is of; false: it is on no list.
func OfObject(object string) (Secret, bool) {
	return find(func(s Secret) []string { return s.Objects }, object)
}

// find is the first secret of the list with a pattern that fits; one that is as long as a name is before those with *.
func find(patterns func(Secret) []string, name string) (found Secret, ok bool) {
	longest := -1
	for _, s := range Secrets() {
		for _, p := range patterns(s) {
			if fits(p, name) && len(strings.ReplaceAll(p, "*", "")) > longest {
				found, ok, longest = s, true, len(strings.ReplaceAll(p, "*", ""))
			}
		}
	}
	return found, ok
}

func fits(pattern, name string) bool {
	if strings.HasSuffix(pattern, "/") {
		return strings.HasPrefix(name, pattern)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
