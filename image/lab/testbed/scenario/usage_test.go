package scenario

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestObjectsAreCountedByResource(t *testing.T) {
	got, err := objects(`# HELP apiserver_resource_objects Number of stored objects
# TYPE apiserver_resource_objects gauge
apiserver_resource_objects{group="",resource="secrets"} 159
apiserver_resource_objects{group="metal3.io",resource="baremetalhosts"} 1000
apiserver_resource_objects{group="apps",resource="deployments"} 6.000000e+00
apiserver_storage_objects{resource="secrets"} 158
apiserver_storage_objects{resource="baremetalhosts.metal3.io"} 999
apiserver_request_total{resource="secrets"} 5000
`)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"secrets": 159, "baremetalhosts.metal3.io": 1000, "deployments.apps": 6}, got)
}
