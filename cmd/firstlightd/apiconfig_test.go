package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// TestCommandsOfAGuestUseItsAccount: in a pod of a guest no file of an appliance's own Kubernetes is asked for, whatever
// the command, unless it is named.
func TestCommandsOfAGuestUseItsAccount(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // this is no pod
	assert.Equal(t, kube.AdminConfig, defaultKubeconfig())

	t.Setenv(guest.Variable, guest.Placement{Folder: guest.Folder}.Encode())
	_, err := restConfig(defaultKubeconfig())
	require.ErrorIs(t, err, rest.ErrNotInCluster)
	_, err = connectDefault() // of secrets and bundle
	require.ErrorIs(t, err, rest.ErrNotInCluster)
	for _, args := range [][]string{{"uploader"}, {"manifests"}} {
		cmd, _, err := newRootCommand().Find(args)
		require.NoError(t, err)
		assert.Empty(t, cmd.Flags().Lookup("kubeconfig").DefValue, args)
	}

	var out strings.Builder
	cmd := newSecretsCommand()
	cmd.SetOut(&out)
	cmd.SetArgs(nil)
	require.NoError(t, cmd.Execute())
	assert.Contains(t, out.String(), rest.ErrNotInCluster.Error())

	key := filepath.Join(t.TempDir(), "key")
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, []byte(identity.String()), 0o600))
	cmd = newRestoreCommand()
	cmd.SetArgs([]string{"-", "--key", key})
	assert.ErrorContains(t, cmd.Execute(), "this appliance is a guest")

	cmd = newCertifyCommand()
	cmd.SetIn(strings.NewReader("request"))
	assert.ErrorContains(t, cmd.Execute(), "it is a guest")
}
