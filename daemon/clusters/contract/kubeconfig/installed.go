package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// ErrNoName is a name that no cluster can have.
var ErrNoName = errors.New("it is not the name of a cluster")

// ListInstalled are the clusters that have a kubeconfig in dir.
func ListInstalled(dir string) []string {
	all, _ := filepath.Glob(filepath.Join(dir, "*", contract.FileKubeconfig))
	names := make([]string, len(all))
	for i, path := range all {
		names[i] = filepath.Base(strings.TrimSuffix(path, "/"+contract.FileKubeconfig))
	}

	return names
}

// ReadInstalled reads what the installer of a cluster left in dir. For a cluster that is not there it names those that
// are. The error is for people.
func ReadInstalled(dir, cluster string) ([]byte, error) {
	if !fs.ValidPath(cluster) || strings.Contains(cluster, "/") {
		return nil, fmt.Errorf("%q: %w", cluster, ErrNoName)
	}

	text, err := os.ReadFile(filepath.Join(dir, cluster, contract.FileKubeconfig))
	if err == nil {
		if err := Check(text); err != nil {
			return nil, fmt.Errorf("the kubeconfig of cluster %s is not handed out: %w", cluster, err)
		}
		return text, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	names := ListInstalled(dir)
	if len(names) == 0 {
		names = []string{"none"}
	}

	return nil, fmt.Errorf(
		"cluster %s has no kubeconfig yet (see kubectl get bpa -A); installed are: %s", cluster,
		strings.Join(names, ", "),
	)
}
