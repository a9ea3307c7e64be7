package sandbox_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

func TestAPIServerKeepsObjects(t *testing.T) {
	api := sandbox.APIServer(t)
	kubernetes, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	kubectl := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), kubernetes, append([]string{"kubectl", "--kubeconfig", api.Kubeconfig}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	kubectl("create", "configmap", "here", "--from-literal=answer=42")
	require.Equal(t, "42", kubectl("get", "configmap", "here", "-o", "jsonpath={.data.answer}"))
}
