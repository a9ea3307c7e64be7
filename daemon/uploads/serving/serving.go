// Package serving brings the REST API for uploads onto the appliance: the pod of the agent, and the fact that it
// answers.
package serving

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/daemonpod"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// Names of the pod's objects.
const (
	Namespace = "artifacts"
	Name      = "artifacts"
)

// User is who the agent runs as, and who owns its folder.
const User = 65532

// Paths in the pod.
const (
	dataDir = "/artifacts"
	tlsDir  = "/etc/artifacts-tls"
)

// Pod is what the objects are made from.
type Pod struct {
	Dir       string // on the appliance, on DATA; see assets/artifact for what is in it
	Cert, Key []byte // of the API, PEM
	CA        []byte // root that signed Cert, and that client certificates must be of, PEM
	Digest    string // of the daemon's binary: another one starts another pod

	Registry            string // HOST:PORT of the registry that gets container images
	WriteCert, WriteKey []byte // of who may push there, PEM; the registry's own is of CA

	Limits Limits
	S3     bool   // uploads are served by S3, too
	Store  *Store // nil: the folder

	Addr        netip.Addr // of the appliance, at which pods reach the API
	ServiceAddr netip.Addr // of ServiceName
	S3Addr      netip.Addr // of StoreServiceName, if S3 is served
}

// Objects describes the pod: one, never two at a time (the agent believes to be alone with its folder), on the
// appliance's own network, so that every network of the appliance reaches the API.
func (p Pod) Objects() []client.Object {
	named := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	account := rights.Account{Namespace: Namespace, Name: Name}
	// Whose a token is and what its owner may do is the API server's to say.
	reviews := account.BindEverywhere("system:auth-delegator")
	reviews.Name = "artifacts-reviews"
	return append([]client.Object{
		&corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: Namespace}},
		account.Object(),
		reviews,
		rights.NewClusterRole("artifacts-users", []rbacv1.PolicyRule{
			{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}, Verbs: []string{"list"}},
			{APIGroups: []string{"bpa.akraino.org"}, Resources: []string{"softwares"}, Verbs: []string{"list"}},
		}),
		account.BindEverywhere("artifacts-users"),
		rights.NewRole(Namespace, Name, []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{artifact.KeysSecret}, Verbs: []string{"get"},
		}}),
		account.Bind(Namespace, "Role", Name),
		p.newSecret("artifacts-tls", map[string][]byte{
			"tls.crt":   p.Cert,
			"tls.key":   p.Key,
			"ca.crt":    p.CA,
			"write.crt": p.WriteCert,
			"write.key": p.WriteKey,
		}),
		p.newSecret("artifacts-store", p.storeSecret()),
		daemonpod.NewDeployment(
			named,
			map[string]string{label.Binary: p.Digest, label.Keys: p.storeSecretDigest()},
			p.spec(),
		),
	}, p.services()...)
}

func (p Pod) spec() corev1.PodSpec {
	env := func(name, key string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "artifacts-store"}, Key: key}}}
	}
	keys := []corev1.EnvVar{env("STORE_ACCESS_KEY", "access"), env("STORE_SECRET_KEY", "secret")}
	return corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](User),
			RunAsGroup:     ptr.To[int64](User),
			FSGroup:        ptr.To[int64](User),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		// Uploads under way are cut and what came of them is brought into the store.
		TerminationGracePeriodSeconds: ptr.To[int64](40),
		Containers: []corev1.Container{{
			Name: "agent", Image: daemonpod.Image, ImagePullPolicy: corev1.PullNever, SecurityContext: restrictedSecurityContext(), Env: keys,
			Command: slices.Concat([]string{daemonpod.Binary, "artifacts", "--listen", fmt.Sprintf(":%d", artifact.Port),
				"--cert", tlsDir + "/tls.crt", "--key", tlsDir + "/tls.key", "--client-ca", tlsDir + "/ca.crt"}, p.storeFlags(), p.Limits.flags(), p.s3Flags()),
			VolumeMounts: []corev1.VolumeMount{
				daemonpod.BinaryMount,
				// Not the three folders one by one: a file has two names only within one mount.
				{Name: "folder", MountPath: dataDir},
				{Name: "stick", MountPath: artifact.StickArchives, ReadOnly: true},
				{Name: "tls", MountPath: tlsDir, ReadOnly: true},
				{Name: "keys", MountPath: storeDir, ReadOnly: true},
			},
			Ports: []corev1.ContainerPort{{
				Name:          "api",
				ContainerPort: artifact.Port,
				Protocol:      corev1.ProtocolTCP,
			}},
			ReadinessProbe: httpProbe(corev1.URISchemeHTTPS, artifact.Port, "/readyz"),
			Resources:      memoryRequest("64Mi"),
		}},
		Volumes: []corev1.Volume{
			daemonpod.BinaryVolume(),
			daemonpod.HostPath("folder", p.Dir, corev1.HostPathDirectory),
			daemonpod.HostPath("stick", artifact.StickArchives, corev1.HostPathDirectoryOrCreate),
			{
				Name:         "tls",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "artifacts-tls"}},
			},
			{
				Name: "keys",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "artifacts-store",
					Items: []corev1.KeyToPath{{Key: "ca", Path: "ca.crt"}}}},
			},
		},
	}
}

func restrictedSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func memoryRequest(amount string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}}
}

func httpProbe(scheme corev1.URIScheme, port int32, path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Scheme: scheme,
			Host:   "127.0.0.1",
			Port:   intstr.FromInt32(port),
			Path:   path,
		}},
		PeriodSeconds: 10, TimeoutSeconds: 10,
	}
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

func (p Pod) newSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   typeMeta("v1", "Secret"),
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}
