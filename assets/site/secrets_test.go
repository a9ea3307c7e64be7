package site

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecretsOfADocumentWithMistakes(t *testing.T) {
	_, _, err := Redact([]byte(`name: 7
nodes:
- name: a
  bmc: {adress: "ipmi://x", password: "correct horse, battery}"}
- name: b
  bmc: {Password: 'it''s-me-1'}
  os: {password: [p@ss, w0rd]}
artifacts: {store: {endpoint: "http://s3", secretKey: |
    of two
    lines
  }}
`))
	require.Error(t, err, "the last of it is no YAML")

	clean, all, err := Redact([]byte(`name: 7
nodes:
- name: a
  bmc: {adress: "ipmi://x", password: "correct horse, battery}"}
- name: b
  bmc: {Password: 'it''s-me-1'}
  os: {password: [p@ss, w0rd]}
artifacts:
  store:
    secretKey: |
      of two
      lines
`))
	require.NoError(t, err)
	for _, secret := range all {
		assert.NotContains(t, string(clean), secret)
	}
	assert.Contains(t, string(clean), `adress: "ipmi://x"`)
	assert.Equal(t, []string{"correct horse, battery}", "it's-me-1", "p@ss", "w0rd", "of two\nlines\n"}, all)
}

// TestPlainSecretsAreFoundByTheirPlaces: what is hidden, empty or a hash is none.
func TestPlainSecretsAreFoundByTheirPlaces(t *testing.T) {
	paths, err := PlainSecrets([]byte(`nodeDefaults:
  bmc: {username: admin, password: "[redacted]"}
  os: {password: "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7"}
nodes:
  - name: a
    bmc: {password: &p hunter2}
  - name: b
    bmc: {password: *p}
  - name: c
    bmc: {password: ""}
`))
	require.NoError(t, err)
	assert.Equal(t, []string{"/nodes/[a]/bmc/password", "/nodes/[b]/bmc/password"}, paths)
	_, err = PlainSecrets([]byte("a: [b"))
	assert.Error(t, err)
}
