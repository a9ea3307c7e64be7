package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNotReadyNamesTheChecksThatFail(t *testing.T) {
	const report = "[+]ping ok\n[+]etcd ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n[-]shutdown failed: reason withheld\nreadyz check failed"
	assert.Equal(t, []string{"rbac/bootstrap-roles", "shutdown"}, NotReady(report))
	assert.Empty(t, NotReady("ok"))
}
