package ironic

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Pod is what the objects of Ironic's pod are made from.
type Pod struct {
	Namespace   string
	Image       string // of the container
	Config      Config
	Credentials Credentials
	Cert, Key   []byte // of the API, PEM
	CA          []byte // roots that signed Cert and what the forwarder shows, PEM
	StateDir    string // on the appliance: database, on DATA
	FilesDir    string // on the appliance: what package pxe serves and the conductor writes
}

// memoryLimit is some ten times what hundreds of hosts take. One inventory of 8 MiB, the most that package agentgate
// lets through, makes it grow by 400 MiB for a while.
const memoryLimit = "1536Mi"

// Name of Deployment, Secrets and container.
const Name = "ironic"

// Objects describes the pod: one replica, never two at a time (its database is a file),
// on the appliance's own network (where it reaches BMCs and agents, and loopback is the daemon's too), started again
// whenever its configuration or certificate changes.
func (p Pod) Objects() ([]client.Object, error) {
	conf, err := p.Config.Render()
	if err != nil {
		return nil, err
	}

	confData := map[string][]byte{"ironic.conf": conf, "htpasswd": []byte(p.Credentials.HTPasswd + "\n")}
	tlsData := map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key, "ca.crt": p.CA}
	return []client.Object{
		&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: p.Namespace},
		},
		p.newSecret("ironic-config", confData),
		p.newSecret("ironic-tls", tlsData),
		// For the operator and for `baremetal` on the appliance's shell.
		p.newSecret(
			"ironic-credentials",
			map[string][]byte{"username": []byte(p.Credentials.Username), "password": []byte(p.Credentials.Password)},
		),
		apply.NewDeployment(
			metav1.ObjectMeta{Namespace: p.Namespace, Name: Name, Labels: map[string]string{"app.kubernetes.io/name": Name}},
			map[string]string{label.Config: configDigest(confData, tlsData)},
			p.spec(),
		),
	}, nil
}

func (p Pod) spec() corev1.PodSpec {
	mounts := []corev1.VolumeMount{
		{Name: "state", MountPath: StateDir},
		{Name: "files", MountPath: HTTPRoot},
		{Name: "config", MountPath: ConfDir, ReadOnly: true},
		{Name: "tls", MountPath: TLSDir, ReadOnly: true},
		{Name: "log", MountPath: "/var/log/ironic"},
	}
	// For `baremetal` on the appliance's shell, which runs in this pod.
	credentials := corev1.VolumeMount{Name: "credentials", MountPath: "/etc/ironic-credentials", ReadOnly: true}
	// Root, as the owner of the database and of what nodes boot from, and nothing else of root's: none of its programs,
	// ipmitool among them, opens a low port or a raw socket, or is another user's.
	security := &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return corev1.PodSpec{
		SecurityContext:              &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		HostNetwork:                  true,
		DNSPolicy:                    corev1.DNSDefault,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		// It ends a deployment step at a safe point when it is asked to stop.
		TerminationGracePeriodSeconds: ptr.To[int64](30),
		InitContainers: []corev1.Container{{
			Name: "database", Image: p.Image, ImagePullPolicy: corev1.PullNever,
			Command: []string{"/usr/lib/firstlight/ironic-database"}, VolumeMounts: mounts, SecurityContext: security,
		}},
		Containers: []corev1.Container{{
			Name: Name, Image: p.Image, ImagePullPolicy: corev1.PullNever,
			Command: []string{"/usr/bin/ironic", "--config-file", ConfDir + "/ironic.conf"},
			// Each connection to a BMC loads the system's authorities, 14 % of what Ironic does, and then uses
			// none of them: those that are to check a certificate are named explicitly.
			Env:          append(p.Config.proxy(), corev1.EnvVar{Name: "SSL_CERT_FILE", Value: TLSDir + "/ca.crt"}),
			VolumeMounts: append(slices.Clone(mounts), credentials), SecurityContext: security,
			Ports: []corev1.ContainerPort{{Name: "api", ContainerPort: Port, Protocol: corev1.ProtocolTCP}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Scheme: corev1.URISchemeHTTPS, Host: Loopback().String(), Port: intstr.FromInt32(Port), Path: "/v1",
				}},
				PeriodSeconds: 5, TimeoutSeconds: 10,
			},
			// A server that has not answered for half an hour will not (docs/decisions/0011).
			LivenessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
					Scheme: corev1.URISchemeHTTPS, Host: Loopback().String(), Port: intstr.FromInt32(Port), Path: "/v1",
				}},
				PeriodSeconds: 60, TimeoutSeconds: 30, FailureThreshold: 30,
			},
			Resources: corev1.ResourceRequirements{
				// Without a share of the processor it starves on a busy appliance: a BMC is asked by a
				// process of its own, which must have started and answered within seconds.
				Requests: corev1.ResourceList{
					corev1.ResourceMemory: resource.MustParse("200Mi"),
					corev1.ResourceCPU:    resource.MustParse("200m"),
				},
				// With fifty hosts it has 170 MiB. Whatever makes it grow ends it, and not etcd.
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memoryLimit)},
			},
		}},
		Volumes: []corev1.Volume{
			hostPath("state", p.StateDir), hostPath("files", p.FilesDir), hostPath("log", p.StateDir+"/log"),
			{
				Name:         "config",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "ironic-config"}},
			},
			{
				Name:         "tls",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "ironic-tls"}},
			},
			{
				Name:         "credentials",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "ironic-credentials"}},
			},
		},
	}
}

// proxy leads all of TLS through the forwarder, also to BMCs on the provisioning network. BMCs are checked there; a
// client that missed it would meet certificates that it does not trust, and say no password.
func (c Config) proxy() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "HTTPS_PROXY", Value: "http://" + c.Forwarder},
		{Name: "NO_PROXY", Value: "localhost," + Loopback().String() + "," + c.Addr.String()},
		{Name: "REQUESTS_CA_BUNDLE", Value: TLSDir + "/ca.crt"},
	}
}

func (p Pod) newSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

func hostPath(name, path string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: ptr.To(corev1.HostPathDirectoryOrCreate)},
	}}
}

// configDigest changes when any of the files does, and with it the pod.
func configDigest(files ...map[string][]byte) string {
	h := sha256.New()
	for _, set := range files {
		for _, name := range []string{"ironic.conf", "htpasswd", "tls.crt", "ca.crt"} {
			fmt.Fprintf(h, "%s %d\n%s", name, len(set[name]), set[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
