package vault

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestSecretsOfTheAPIAreListedByName: of what is in them nothing is asked for.
func TestSecretsOfTheAPIAreListedByName(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "/var/lib/firstlight/ca"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "/var/lib/firstlight/ca/ca.key"), nil, 0o600))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/secrets" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			http.Error(w, "values are asked for", http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		item := func(namespace, name string) metav1.PartialObjectMetadata {
			return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		}
		_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
			Items: []metav1.PartialObjectMetadata{
				item("metal3", "n-bmc-secret"), item("metal3", "unheard-of"), item("tenant", "own"),
			},
		})
	}))
	defer server.Close()

	l := List(t.Context(), root, func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil })
	held := map[string]int{}
	for _, h := range l.Secrets {
		held[h.Name] = h.Count
	}
	assert.Equal(t, []int{1, 1}, []int{held["authority"], held["logins of BMCs"]})
	assert.Equal(t, []string{"metal3/unheard-of"}, l.Unlisted)
	assert.Empty(t, l.Error)

	l = List(t.Context(), root, func() (*rest.Config, error) { return nil, os.ErrNotExist })
	assert.Equal(t, "Secrets of the API are not listed: file does not exist", l.Error)
	assert.NotEmpty(t, l.Secrets, "files are listed all the same")
}

func TestAgesAreInTheirLargestUnit(t *testing.T) {
	for age, want := range map[time.Duration]string{
		59 * time.Minute: "59 min", time.Hour: "1 h", 47 * time.Hour: "47 h", 48 * time.Hour: "2 d", 400 * 24 * time.Hour: "400 d",
	} {
		assert.Equal(t, want, FormatAge(age))
	}
}
