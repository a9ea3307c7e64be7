// Package guest writes what brings the appliance to a Kubernetes that is there: manifests for kubectl, and an archive of
// the container images.
//
// The manifests are few: the pod of the daemon, and its rights. The daemon is the same as on a stick, with the same plan,
// and applies Ironic, Metal3, the operators, Cluster API and the REST API itself, from the objects that the stick has.
package guest

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/stick"
)

// program is the daemon in the image of the root.
const program = "/usr/bin/firstlightd"

// runDir is the daemon's run directory, and registryRunDir where the registry's process answers the daemon.
const (
	runDir         = stick.RunDir
	registryRunDir = "/run/firstlight-registry"
)

// Files of the folder that WriteManifests fills.
const (
	kustomization = "kustomization.yaml"
	manifestsFile = "firstlight.yaml"
	removalFile   = "remove.sh"
)

// removal takes the appliance from the cluster again, in the one order in which that comes to an end: a namespace does
// not go while a webhook is asked whose pods are gone, and a kind not while its objects have finalizers.
//
//go:embed remove.sh
var removal []byte

// WriteManifests fills a folder, for `kubectl apply -k`, and with what removes all of it again. The site document may have
// passwords: its file is for its owner alone, and kubectl makes a Secret of it.
func WriteManifests(dir string, site []byte, p guest.Placement) error {
	if err := p.Check(); err != nil {
		return err
	}
	objects, err := encode(Objects(p))
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []string{manifestsFile},
		"secretGenerator": []any{map[string]any{
			"name": guest.SiteSecret, "namespace": guest.Namespace, "files": []string{guest.SiteKey},
		}},
	})
	if err != nil {
		return err
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of manifests: %w", err)
	}
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{
		{guest.SiteKey, site, 0o600},
		{manifestsFile, objects, 0o644},
		{kustomization, text, 0o644},
		{removalFile, removal, 0o755},
	} {
		if err := atomicfile.Write(filepath.Join(dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// encode is a stream of documents. What only the API server says is left out.
func encode(objects []runtime.Object) (stream []byte, err error) {
	for _, o := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		delete(content, "status")
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, err
		}
		stream = append(append(stream, "---\n"...), text...)
	}
	return stream, nil
}

// Objects are those that are applied by kubectl. All others are the daemon's.
func Objects(p guest.Placement) []runtime.Object {
	meta := metav1.ObjectMeta{Namespace: guest.Namespace, Name: guest.Name}
	labels := map[string]string{"app.kubernetes.io/name": guest.Name}
	return []runtime.Object{
		&corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{
				Name: guest.Namespace,
				// The pod is on the node's network, and has folders of it.
				Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
			},
		},
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: meta,
		},
		// It defines kinds, and gives operators their rights, which takes all that it gives.
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: guest.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: guest.Namespace, Name: guest.Name}},
		},
		&appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: guest.Namespace, Name: guest.Name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1),
				// Two would serve the same addresses, and write the same files.
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       pod(p),
				},
			},
		},
	}
}

// nodeFolders are the folders of the node that the daemon shares with its pods, or keeps what it knows in.
func nodeFolders() []string {
	return []string{stick.DataDir, "/var/lib/ironic", "/opt/kud", runDir + "/dhcp", runDir + "/agent"}
}

func pod(p guest.Placement) corev1.PodSpec {
	image := p.Image(rootImage)
	container := func(name string, capabilities []corev1.Capability, args ...string) corev1.Container {
		return corev1.Container{
			Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{program}, Args: args,
			SecurityContext: &corev1.SecurityContext{
				RunAsUser:                ptr.To[int64](0),
				AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		}
	}

	// It answers DHCP by packets, listens at ports below 1024, gives folders to the users of its pods, and reads theirs.
	daemon := container("firstlightd", []corev1.Capability{
		"CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW", "SETPCAP",
	}, "run", "--guest")
	daemon.Env = []corev1.EnvVar{{Name: guest.Variable, Value: p.Encode()}}
	daemon.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{program, "status", "--wait=appliance", "--timeout=10s"}}},
		PeriodSeconds: 30, TimeoutSeconds: 30,
	}
	daemon.VolumeMounts = []corev1.VolumeMount{{Name: "run", MountPath: runDir}, {Name: "registry-run", MountPath: registryRunDir}}

	// What clients do to the registry ends there: it reads every file of the image's layers, and gives that up before it listens.
	registry := container("registry", []corev1.Capability{"DAC_READ_SEARCH", "SETPCAP"}, "registry")
	registry.VolumeMounts = []corev1.VolumeMount{
		{Name: "run", MountPath: runDir},
		{Name: "registry-run", MountPath: registryRunDir},
		{Name: "registry-store", MountPath: stick.DataDir + "/registry"},
	}

	// Pods of the daemon's program have it from the node, as on a stick.
	copier := container("program", nil)
	copier.Command = []string{"/bin/cp", "--preserve=mode,timestamps", "--remove-destination", program, "/node/firstlightd"}
	copier.VolumeMounts = []corev1.VolumeMount{{Name: "node-program", MountPath: "/node"}}

	volumes := []corev1.Volume{
		memory("run"), memory("registry-run"),
		folder("registry-store", p, stick.DataDir+"/registry"),
		folder("node-program", p, path.Dir(program)),
		{Name: "site", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: guest.SiteSecret, DefaultMode: ptr.To[int32](0o400),
		}}},
	}
	daemon.VolumeMounts = append(daemon.VolumeMounts, corev1.VolumeMount{Name: "site", MountPath: stick.SiteDir, ReadOnly: true})
	for i, f := range nodeFolders() {
		name := fmt.Sprintf("node-%d", i)
		volumes = append(volumes, folder(name, p, f))
		daemon.VolumeMounts = append(daemon.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: f})
	}

	return corev1.PodSpec{
		ServiceAccountName: guest.Name,
		HostNetwork:        true,
		DNSPolicy:          corev1.DNSDefault,
		EnableServiceLinks: ptr.To(false),
		PriorityClassName:  "system-cluster-critical",
		NodeSelector:       guest.NodeSelector(),
		Tolerations: []corev1.Toleration{{
			Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}},
		InitContainers: []corev1.Container{copier},
		Containers:     []corev1.Container{daemon, registry},
		Volumes:        volumes,
	}
}

// memory is a folder that ends with the pod.
func memory(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
	}}
}

// folder is one of the appliance's on the node.
func folder(name string, p guest.Placement, at string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: path.Join(p.Folder, at), Type: ptr.To(corev1.HostPathDirectoryOrCreate),
	}}}
}
