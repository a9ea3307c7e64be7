package kud

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/label"
)

// ICN's names.
const (
	Dir          = "/opt/kud/multi-cluster" // on the appliance, and in the container
	SSHSecret    = "ssh-key-secret"         // id_rsa, id_rsa.pub
	Environment  = "kud-installer"          // ConfigMap
	LabelCluster = "cluster"
)

// program is the daemon on the appliance, and in a container of assets.InstallerImage.
const program = "/usr/bin/firstlightd"

// Files of a cluster, below its directory in Dir.
const (
	FileInventory  = "hosts.ini"
	FileKnownHosts = "known_hosts"
	FileInstalled  = "installed.json"
	FileProgress   = "progress.json"
	FileIdentity   = "cluster.json" // of the stick's installer: which life of the cluster this is
	FileKubeconfig = "artifacts/admin.conf"
	FileVerified   = "artifacts/verification.json"
	FileRemoved    = "artifacts/removed.json"
	FileLearned    = "artifacts/known_hosts" // host keys that the stick's installer met
	FileKeys       = "keys.json"             // the operator's: of which system each host key is
	LogDir         = "log"
)

// JobName is the name of a cluster's Job.
func JobName(cluster string) string { return "kud-" + cluster }

// LogFile is where what the run printed is kept, below the cluster's directory.
func (r Run) LogFile() string {
	return path.Join(LogDir, fmt.Sprintf("kud-%d-%s-%d.log", r.Generation, r.Action, r.Attempt))
}

// DefaultEnvironment is ICN's ConfigMap kud-installer.
func DefaultEnvironment() map[string]string {
	return map[string]string{
		"CONTAINER_RUNTIME": "docker", "KUD_DEBUG": "", "KUD_ENABLE_TESTS": "true",
		"ENABLE_KATA_WEBHOOK": "false", "KATA_WEBHOOK_RUNTIMECLASS": "kata-clh",
	}
}

// Command is the installer's command line, ICN's to the letter.
func (r Run) Command(cluster string) string {
	c := "cp -r /.ssh /root/; chmod -R 600 /root/.ssh; ./installer --cluster " + cluster
	if r.Action == Remove {
		return c + " --remove " + strings.Join(r.Nodes, " ")
	}
	if r.PodSubnet != "" {
		c += " --network " + r.PodSubnet
	}
	if len(r.Plugins) > 0 {
		c += " --plugins " + strings.Join(r.Plugins, " ")
	}
	return c
}

// Job describes the run in a namespace.
func (r Run) Job(namespace, cluster string, owner metav1.OwnerReference) (*batchv1.Job, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode run of cluster %s: %w", cluster, err)
	}
	labels := map[string]string{LabelCluster: cluster}
	mounts := []corev1.VolumeMount{{Name: "multi-cluster", MountPath: Dir}, {Name: "secret-volume", MountPath: "/.ssh"}}
	volumes := []corev1.Volume{
		{Name: "multi-cluster", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: Dir}}},
		{Name: "secret-volume", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: SSHSecret}}},
	}
	if r.Image == assets.InstallerImage {
		mounts = append(mounts, corev1.VolumeMount{Name: "program", MountPath: program, ReadOnly: true})
		source := corev1.HostPathVolumeSource{Path: program, Type: ptr.To(corev1.HostPathFile)}
		volumes = append(volumes, corev1.Volume{Name: "program", VolumeSource: corev1.VolumeSource{HostPath: &source}})
	}
	env := []corev1.EnvVar{{Name: "KUD_ACTION", Value: r.Action}, {Name: "KUD_NODES", Value: strings.Join(r.Nodes, " ")}}
	if r.ServiceSubnet != "" {
		env = append(env, corev1.EnvVar{Name: "KUD_SERVICE_SUBNET", Value: r.ServiceSubnet})
	}
	if len(r.Clear) > 0 {
		var all []string
		for _, label := range slices.Sorted(maps.Keys(r.Clear)) {
			all = append(all, label+"="+r.Clear[label])
		}
		env = append(env, corev1.EnvVar{Name: "KUD_CLEAR", Value: strings.Join(all, " ")})
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: JobName(cluster), Labels: labels, OwnerReferences: []metav1.OwnerReference{owner},
			Annotations: map[string]string{label.Run: string(text)},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					HostNetwork:   true,
					DNSPolicy:     corev1.DNSDefault,

					AutomountServiceAccountToken: ptr.To(false),
					EnableServiceLinks:           ptr.To(false),
					Containers: []corev1.Container{{
						Name: "kud", Image: r.Image, ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{"/bin/sh", "-c"}, Args: []string{r.Command(cluster)},
						EnvFrom:         []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: Environment}}}},
						Env:             env,
						SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
						// What it printed last is the reason of a failure.
						TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
						VolumeMounts:             mounts,
					}},
					Volumes: volumes,
				},
			},
		},
	}, nil
}

// RunOf reads the run back from its Job; false for a Job that is not ours.
func RunOf(job *batchv1.Job) (Run, bool) {
	var r Run
	err := json.Unmarshal([]byte(job.Annotations[label.Run]), &r)
	return r, err == nil && r.Action != ""
}

// ExitRefused is the exit code of an installer that will fail however often it is tried.
const ExitRefused = 2

// Outcome is how a Job stands.
type Outcome struct {
	Ended     bool
	Succeeded bool
	Started   bool // its container did; otherwise it can be replaced without harm
	Refused   bool // the installer said that trying again is of no use
	At        time.Time
	Message   string // of the failure, or why it does not start
}

// OutcomeOf reads a Job and its pods.
func OutcomeOf(job *batchv1.Job, pods []corev1.Pod) Outcome {
	var o Outcome
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			o = Outcome{Ended: true, Started: true, Succeeded: c.Type == batchv1.JobComplete, At: c.LastTransitionTime.Time, Message: c.Message}
		}
	}
	pods = slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			switch s := c.State; {
			case s.Terminated != nil:
				o.Started = true
				if s.Terminated.ExitCode != 0 {
					o.Refused = s.Terminated.ExitCode == ExitRefused
					o.Message = fmt.Sprintf("exit code %d: %s", s.Terminated.ExitCode, lastLine(s.Terminated.Message))
				}
			case s.Running != nil:
				o.Started = true
			case s.Waiting != nil && !o.Ended && s.Waiting.Reason != "ContainerCreating": // that is the way of every pod
				o.Message = strings.TrimSpace(s.Waiting.Reason + " " + s.Waiting.Message)
			}
		}
	}
	return o
}

// lastLine is the end of what a program printed: its last three lines that are not blank.
func lastLine(s string) string {
	lines := slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	s = strings.Join(lines[max(0, len(lines)-3):], " / ")
	if len(s) > 500 {
		s = "… " + strings.ToValidUTF8(s[len(s)-500:], "")
	}
	return s
}

// Progress is what an installer may say of itself while it runs.
type Progress struct {
	Percent int               `json:"percent"`
	Doing   string            `json:"doing"`
	Nodes   map[string]string `json:"nodes"`
	Ready   []string          `json:"ready"` // labels of the nodes that are Ready in the cluster
}

// ReadProgress reads progress.json; what is torn or out of bounds says nothing.
func ReadProgress(text []byte) Progress {
	var p Progress
	if json.Unmarshal(text, &p) != nil {
		return Progress{}
	}
	p.Percent = min(max(p.Percent, 0), 100)
	return p
}
