package ovn

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"firstlight.dev/firstlight/daemon/addons/ovsdb"
	"firstlight.dev/firstlight/daemon/addons/ovsdb/ovsdbtest"
)

func TestANodeThatLeftIsForgotten(t *testing.T) {
	db := ovsdbtest.New(t, nil)
	for _, name := range []string{"one", "two"} {
		row := map[string]any{"name": name}
		_, err := ovsdb.Transact(t.Context(), db.Address, nil, Southbound,
			ovsdb.Insert("Chassis", "", row), ovsdb.Insert("Chassis_Private", "", row))
		require.NoError(t, err)
	}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
	c := &Chassis{Nodes: client.CoreV1().Nodes(), Database: db.Address, Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, c.forget(t.Context()))
	assert.Len(t, db.Column("Chassis", "name"), 2, "a first time may be a mistake")
	require.NoError(t, c.forget(t.Context()))
	assert.Equal(t, map[string]string{"one": `"one"`}, db.Column("Chassis", "name"))
	assert.Equal(t, map[string]string{"one": `"one"`}, db.Column("Chassis_Private", "name"))
}
