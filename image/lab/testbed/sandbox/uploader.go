package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Uploader is a workstation beside an appliance: the workstation's command, and a token that may
// bring and take away artifacts of one owner.
type Uploader struct {
	sandbox           *Sandbox
	dir               string // the command, the appliance's authority
	owner, kubeconfig string
}

// rights lets a service account do everything with the artifacts of its namespace (docs/artifacts.md).
const rights = `{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: uploader, namespace: %[1]s}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: uploader, namespace: %[1]s}, rules: [{apiGroups: [artifact.firstlight.dev],
resources: [binary_images, container_images, os_images], verbs: [create, get, list, update, patch, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: uploader, namespace: %[1]s},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: uploader}, subjects: [{kind: ServiceAccount, name: uploader, namespace: %[1]s}]}
`

// NewUploader compiles the command into dir, an empty directory, and gives it the rights on the
// appliance, which must take uploads already.
func NewUploader(ctx context.Context, appliance *Sandbox, dir, owner string) (*Uploader, error) {
	if _, err := Build(ctx, ".", "./cmd/firstlight", dir); err != nil {
		return nil, err
	}

	authority, err := os.ReadFile(appliance.DataPath("/var/lib/firstlight/ca/ca.crt"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ca.crt"), authority, 0o644)
	}

	if err != nil {
		return nil, fmt.Errorf("take the appliance's authority: %w", err)
	}

	if err := appliance.Apply(ctx, fmt.Sprintf(rights, owner)); err != nil {
		return nil, fmt.Errorf("give the uploader its rights: %w", err)
	}

	token, err := appliance.Run(ctx, "kubectl", "create", "token", "--namespace", owner, "--duration", "2h", "uploader")
	return &Uploader{sandbox: appliance, dir: dir, owner: owner, kubeconfig: strings.TrimSpace(token)}, err
}

// Pack runs `firstlight pack` on the workstation, and returns all that it printed.
func (u *Uploader) Pack(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(u.dir, "firstlight"), append([]string{"pack"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("firstlight pack %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Artifact runs `firstlight artifact` in the appliance's network, for the owner's cluster "edge",
// and returns all that it printed.
func (u *Uploader) Artifact(ctx context.Context, args ...string) (string, error) {
	words := append([]string{"--target", strconv.Itoa(u.sandbox.PID()), "--net", filepath.Join(
		u.dir, "firstlight",
	), "artifact"}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", append(words, "--owner", u.owner, "--cluster", "edge")...)
	cmd.Env = append(
		os.Environ(), "FIRSTLIGHT_SERVER=https://172.22.0.1:9015", "FIRSTLIGHT_CA="+filepath.Join(u.dir, "ca.crt"),
		"FIRSTLIGHT_TOKEN="+u.kubeconfig,
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("firstlight artifact %s: %w: %s", strings.Join(args, " "), err, out)
	}

	return string(out), nil
}
