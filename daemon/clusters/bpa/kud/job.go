package kud

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// ICN's names.
const (
	SSHSecret    = "ssh-key-secret" // with contract.FilePrivateKey and contract.FilePublicKey; the owner's own, if there is one
	Environment  = "kud-installer"  // ConfigMap
	LabelCluster = "cluster"
)

// program is the daemon on the appliance, and in a container of assets.InstallerImage.
const program = "/usr/bin/firstlightd"

// JobName is the name of a cluster's Job.
func JobName(cluster string) string { return "kud-" + cluster }

// KeySecret is the name of the Secret with a cluster's log-in to its nodes, where the Jobs are.
func KeySecret(cluster string) string { return SSHSecret + "-" + cluster }

// LogFile is where what the run printed is kept, below the cluster's directory.
func (r Run) LogFile() string {
	return path.Join(contract.LogDir, fmt.Sprintf("kud-%d-%s-%d.log", r.Generation, r.Action, r.Attempt))
}

// DefaultEnvironment is ICN's ConfigMap kud-installer.
func DefaultEnvironment() map[string]string {
	return map[string]string{
		"CONTAINER_RUNTIME": "docker", "KUD_DEBUG": "", "KUD_ENABLE_TESTS": "true",
		"ENABLE_KATA_WEBHOOK": "false", "KATA_WEBHOOK_RUNTIMECLASS": "kata-clh",
	}
}

// value is what a value of Environment may be: words, with nothing that a shell or a linker would act on.
var value = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// FilterEnvironment leaves of an owner's Environment the names that ICN documents, with values that are words, and
// returns the names of the rest, sorted. The installer's shell runs as root on the appliance: PATH or LD_PRELOAD there
// is whatever whoever may edit a ConfigMap wants it to do.
func FilterEnvironment(data map[string]string) (passed map[string]string, rest []string) {
	passed = map[string]string{}
	known := DefaultEnvironment()
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if _, ok := known[name]; ok && (data[name] == "" || value.MatchString(data[name])) {
			passed[name] = data[name]
			continue
		}
		rest = append(rest, name)
	}
	return passed, rest
}

// Command is the installer's command line, ICN's to the letter.
func (r Run) Command(cluster string) string {
	c := "cp -r /.ssh /root/; chmod -R 600 /root/.ssh; ./installer --cluster " + cluster
	if r.Action == contract.Remove {
		return c + " --remove " + strings.Join(r.Nodes, " ")
	}
	if r.Action == contract.Rotate {
		c += ` --rotate-authorities "$` + contract.EnvRotation + `"`
	}

	if r.PodSubnet != "" {
		c += " --network " + r.PodSubnet
	}

	if len(r.Plugins) > 0 {
		c += " --plugins " + strings.Join(r.Plugins, " ")
	}

	return c
}

// Job describes the run in a namespace, which is the operator's: what the installer holds is for nobody else to read,
// and pods that may do what it does are admitted nowhere else. It sees the files of its own cluster.
func (r Run) Job(namespace, cluster string) (*batchv1.Job, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode run of cluster %s: %w", cluster, err)
	}

	labels := map[string]string{LabelCluster: cluster}
	mounts := []corev1.VolumeMount{{
		Name:      "multi-cluster",
		MountPath: path.Join(contract.Dir, cluster),
	}, {Name: "secret-volume", MountPath: "/.ssh"}}
	volumes := []corev1.Volume{
		{
			Name: "multi-cluster",
			VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path.Join(contract.Dir, cluster)},
			},
		},
		{
			Name:         "secret-volume",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: KeySecret(cluster)}},
		},
	}
	security := &corev1.SecurityContext{Privileged: ptr.To(true)} // KUD's containers need it
	if r.Image == assets.InstallerImage {
		// Ours needs no more than the command: it leaves /root/.ssh without the right to enter it.
		security = &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  []corev1.Capability{"DAC_OVERRIDE"},
			},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		mounts = append(mounts, corev1.VolumeMount{Name: "program", MountPath: program, ReadOnly: true})
		source := corev1.HostPathVolumeSource{Path: program, Type: ptr.To(corev1.HostPathFile)}
		volumes = append(volumes, corev1.Volume{Name: "program", VolumeSource: corev1.VolumeSource{HostPath: &source}})
	}

	var env []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(r.Environment)) {
		env = append(env, corev1.EnvVar{Name: name, Value: r.Environment[name]})
	}
	env = append(env, []corev1.EnvVar{
		{Name: contract.EnvAction, Value: r.Action},
		{Name: contract.EnvNodes, Value: strings.Join(r.Nodes, " ")},
	}...)
	if r.ServiceSubnet != "" {
		env = append(env, corev1.EnvVar{Name: contract.EnvServiceSubnet, Value: r.ServiceSubnet})
	}

	if r.Owner != "" {
		env = append(env, corev1.EnvVar{Name: contract.EnvOwner, Value: r.Owner})
	}

	if r.Action == contract.Rotate {
		env = append(env, corev1.EnvVar{Name: contract.EnvRotation, Value: r.Rotation})
	}

	if len(r.Clear) > 0 {
		env = append(env, corev1.EnvVar{Name: contract.EnvClear, Value: contract.FormatClear(r.Clear)})
	}

	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        JobName(cluster),
			Labels:      labels,
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
						Env:             env,
						SecurityContext: security,
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
			o = Outcome{
				Ended:     true,
				Started:   true,
				Succeeded: c.Type == batchv1.JobComplete,
				At:        c.LastTransitionTime.Time,
				Message:   c.Message,
			}
		}
	}

	pods = slices.SortedFunc(
		slices.Values(pods),
		func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) },
	)
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			switch s := c.State; {
			case s.Terminated != nil:
				o.Started = true
				if s.Terminated.ExitCode != 0 {
					o.Refused = s.Terminated.ExitCode == contract.ExitRefused
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
	return excerpt.End(strings.Join(lines[max(0, len(lines)-3):], " / "), 500)
}
