package installer

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// debian is what decides on a Debian system whom its programs trust, in directories of its own.
type debian struct {
	t              *testing.T
	local, trusted string // as /usr/local/share/ca-certificates and /etc/ssl/certs
	authority      *ca.Authority
	server, other  string // files with certificates of the appliance's authority, and of the owner's
}

func newDebian(t *testing.T) debian {
	for _, name := range []string{"openssl", "/usr/sbin/update-ca-certificates"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs openssl and ca-certificates of Debian: ", err)
		}
	}

	dir := t.TempDir()
	d := debian{t: t, local: filepath.Join(dir, "local"), trusted: filepath.Join(dir, "trusted")}
	for _, name := range []string{"local", "trusted", "shipped", "hooks"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca-certificates.conf"), nil, 0o644))

	sign := func(name string) (*ca.Authority, string) {
		a, err := ca.Open(filepath.Join(dir, name), time.Now)
		require.NoError(t, err)
		pair, err := a.Sign(ca.Names{Of: name, Addrs: []netip.Addr{netip.MustParseAddr("172.22.0.1")}})
		require.NoError(t, err)
		file := filepath.Join(dir, name+".pem")
		require.NoError(t, os.WriteFile(file, pair.Cert, 0o644))
		return a, file
	}
	d.authority, d.server = sign("appliance")
	owner, other := sign("owner")
	d.other = other
	require.NoError(t, os.WriteFile(filepath.Join(d.local, "owner.crt"), owner.PEM(), 0o644))
	d.update()
	return d
}

// update is update-ca-certificates.
func (d debian) update() {
	dir := filepath.Dir(d.local)
	out, err := exec.Command("/usr/sbin/update-ca-certificates", "--certsconf", filepath.Join(dir, "ca-certificates.conf"),
		"--certsdir", filepath.Join(dir, "shipped"), "--localcertsdir", d.local,
		"--etccertsdir", d.trusted, "--hooksdir", filepath.Join(dir, "hooks")).CombinedOutput()
	require.NoError(d.t, err, string(out))
}

// file is where the authority is, and bundle where all certificates are.
func (d debian) file() string   { return filepath.Join(d.local, "firstlight.crt") }
func (d debian) bundle() string { return filepath.Join(d.trusted, "ca-certificates.crt") }

// install does what the user data of earlier versions did.
func (d debian) install() {
	require.NoError(d.t, os.WriteFile(d.file(), d.authority.PEM(), 0o644))
	out, err := exec.Command("sh", "-c", `test ! -e "$0" || cat "$1" >>"$0"`, d.bundle(), d.file()).CombinedOutput()
	require.NoError(d.t, err, string(out))
}

func (d debian) distrust() {
	out, err := exec.Command("sh", "-euc", distrust, "sh", d.file(), d.trusted).CombinedOutput()
	require.NoError(d.t, err, string(out))
}

// trusts reports whether programs take a certificate: those that read the bundle, such as curl, and those that look an
// authority up by its digest.
func (d debian) trusts(certificate string) (bundle, directory bool) {
	verify := func(option, where string) bool {
		return exec.Command("openssl", "verify", "-no-CAfile", "-no-CApath", option, where, certificate).Run() == nil
	}
	return verify("-CAfile", d.bundle()), verify("-CApath", d.trusted)
}

// TestNodesOfBeforeTrustTheApplianceForImagesAlone: what earlier versions and update-ca-certificates wrote is taken
// back, and nothing else.
func TestNodesOfBeforeTrustTheApplianceForImagesAlone(t *testing.T) {
	for name, before := range map[string]func(debian){
		"as it was installed":                     func(d debian) { d.install() },
		"installed twice":                         func(d debian) { d.install(); d.install() },
		"update-ca-certificates ran since":        func(d debian) { d.install(); d.update() },
		"interrupted before the file was removed": func(d debian) { d.install(); d.distrust(); d.rewrite() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDebian(t)
			untouched, err := os.ReadFile(d.bundle())
			require.NoError(t, err)
			before(d)

			d.distrust()
			for _, again := range []bool{false, true} {
				bundle, directory := d.trusts(d.server)
				assert.False(t, bundle || directory, "the appliance's authority is trusted: %v, %v", bundle, directory)
				bundle, directory = d.trusts(d.other)
				assert.True(t, bundle && directory, "the owner's authority is not trusted: %v, %v", bundle, directory)
				assert.NoFileExists(t, d.file())
				if !again {
					text, err := os.ReadFile(d.bundle())
					require.NoError(t, err)
					assert.Equal(t, string(untouched), string(text))
					info, err := os.Stat(d.bundle())
					require.NoError(t, err)
					assert.Equal(t, os.FileMode(0o644), info.Mode().Perm())
					d.update() // nor does it come back
				}
			}
		})
	}
}

func (d debian) rewrite() { require.NoError(d.t, os.WriteFile(d.file(), d.authority.PEM(), 0o644)) }

// TestATornAuthorityTakesNoOtherWithIt: an empty file, as a power cut may leave it, stands for no certificate.
func TestATornAuthorityTakesNoOtherWithIt(t *testing.T) {
	d := newDebian(t)
	d.install()
	bundle, _ := d.trusts(d.server)
	require.True(t, bundle, "this test proves nothing")

	require.NoError(t, os.Truncate(d.file(), 0))
	before, err := os.ReadFile(d.bundle())
	require.NoError(t, err)
	d.distrust()
	after, err := os.ReadFile(d.bundle())
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}
