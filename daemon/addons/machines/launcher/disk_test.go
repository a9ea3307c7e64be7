package launcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prepare prepares the volumes of a spec below a folder with claims 0 to 9.
func prepare(t *testing.T, root, spec string, claims map[string]int64) (map[string]File, error) {
	t.Helper()
	for _, dir := range []string{RunDir, DiskDir, ClaimDir + "/0", ClaimDir + "/1"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	p := Preparation{
		Machine: Machine{Namespace: "default", Name: "web", Spec: read(t, spec), Claims: claims},
		Root:    root,
		Client:  http.DefaultClient,
		Pause:   time.Millisecond,
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return p.Prepare(t.Context())
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

func TestDisksOfClaims(t *testing.T) {
	root := t.TempDir()
	const spec = `{domain: {}, volumes: [{name: a, persistentVolumeClaim: {claimName: a}}, {name: b, emptyDisk: {capacity: 3Mi}}]}`
	for range 2 {
		files, err := prepare(t, root, spec, map[string]int64{"a": 1 << 30})
		require.NoError(t, err)
		assert.Equal(t, map[string]File{
			"a": {filepath.Join(root, "claims/0/disk.img"), Raw}, "b": {filepath.Join(root, "var/lib/machine/1/disk.img"), Raw},
		}, files)
		assert.EqualValues(t, 967<<20, size(t, files["a"].Path), "1 GiB without 5.5 %")
		assert.EqualValues(t, 3<<20, size(t, files["b"].Path))
	}

	// What a guest wrote is not guessed at: a raw disk that looks like qcow2 stays raw.
	disk := filepath.Join(root, "claims/0/disk.img")
	require.NoError(t, os.WriteFile(disk, qcow2(0, 0), 0o600))
	files, err := prepare(t, root, spec, map[string]int64{"a": 1 << 30})
	require.NoError(t, err)
	assert.Equal(t, Raw, files["a"].Format)

	require.NoError(t, os.Rename(disk, filepath.Join(root, "claims/0/disk.qcow2")))
	files, err = prepare(t, root, spec, map[string]int64{"a": 1 << 30})
	require.NoError(t, err)
	assert.Equal(t, QCOW2, files["a"].Format)

	_, err = prepare(t, t.TempDir(), `{domain: {}, volumes: [{name: a, persistentVolumeClaim: {claimName: a, readOnly: true}}]}`, map[string]int64{"a": 1 << 30})
	assert.EqualError(t, err, "volume a: the claim has no file disk.img; write one, or let it be made: readOnly: false")
}

// qcow2 is the header of such a file (version 3).
func qcow2(backing, incompatible uint64) []byte {
	head := make([]byte, 512)
	copy(head, "QFI\xfb")
	binary.BigEndian.PutUint32(head[4:], 3)
	binary.BigEndian.PutUint64(head[8:], backing)
	binary.BigEndian.PutUint64(head[72:], incompatible)
	return head
}

func TestImagesAreFetched(t *testing.T) {
	raw := append(append(bytes.Repeat([]byte("boot"), 300), make([]byte, 3<<20)...), "end"...)
	sum := sha256.Sum256(raw)
	var asked []string
	flaky := 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		var body []byte
		switch r.URL.Path {
		case "/raw":
			body = raw
		case "/qcow2":
			body = qcow2(0, 0)
		case "/backed":
			body = qcow2(512, 0)
		case "/split":
			body = qcow2(0, 4)
		case "/flaky":
			if flaky--; flaky >= 0 {
				w.Header().Set("Content-Length", "1000000")
				_, _ = w.Write(raw[:1000]) // and the connection ends
				return
			}
			body = raw
		case "/broken":
			http.Error(w, "no", http.StatusInternalServerError)
			return
		default:
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	image := func(fields string) string {
		return "{domain: {}, volumes: [{name: a, firstlightImage: {url: " + server.URL + fields + "}}]}"
	}

	root := t.TempDir()
	files, err := prepare(t, root, image("/raw, checksum: 'sha256:"+hex.EncodeToString(sum[:])+"', capacity: 8Mi"), nil)
	require.NoError(t, err)
	assert.Equal(t, File{filepath.Join(root, "var/lib/machine/0/disk.img"), Raw}, files["a"])
	have, err := os.ReadFile(files["a"].Path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(raw, have[:len(raw)]))
	assert.Len(t, have, 8<<20)
	info, err := os.Stat(files["a"].Path)
	require.NoError(t, err)
	assert.Less(t, info.Sys().(*syscall.Stat_t).Blocks*512, int64(1<<20), "zeros take room")

	// One that is kept is fetched once, whatever was interrupted before.
	root, asked = t.TempDir(), nil
	require.NoError(t, os.MkdirAll(filepath.Join(root, "claims/0"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "claims/0/image.part"), []byte("interrupted, and longer than"), 0o600))
	for range 2 {
		files, err = prepare(t, root, image("/qcow2, claimName: c"), map[string]int64{"a": 1 << 30})
		require.NoError(t, err)
		assert.Equal(t, File{filepath.Join(root, "claims/0/disk.qcow2"), QCOW2}, files["a"])
		assert.EqualValues(t, 512, size(t, files["a"].Path))
	}
	assert.Equal(t, []string{"/qcow2"}, asked)

	root = t.TempDir()
	files, err = prepare(t, root, image("/flaky, claimName: c"), map[string]int64{"a": 100 << 20})
	require.NoError(t, err)
	assert.EqualValues(t, 94<<20, size(t, files["a"].Path), "it is as large as the claim")

	for fields, want := range map[string]string{
		"/none":                     server.URL + "/none answers 404 Not Found",
		"/broken":                   server.URL + "/broken answers 500 Internal Server Error",
		"/raw, checksum: sha256:00": server.URL + "/raw has the checksum sha256:" + hex.EncodeToString(sum[:]) + ", not sha256:00",
		"/backed":                   server.URL + "/backed: the image is a difference to a backing file; convert it: qemu-img convert -O qcow2",
		"/split":                    server.URL + "/split: the image has its data in another file; convert it: qemu-img convert -O qcow2",
		"/qcow2, capacity: 1Gi":     server.URL + "/qcow2 is qcow2, which has a size of its own; take capacity out",
	} {
		root := t.TempDir()
		_, err := prepare(t, root, image(fields), nil)
		assert.EqualError(t, err, "volume a: "+want)
		_, err = os.Stat(filepath.Join(root, "var/lib/machine/0/disk.img"))
		assert.ErrorIs(t, err, fs.ErrNotExist, "a disk that is not whole has its name")
	}
}

func TestSeeds(t *testing.T) {
	root := t.TempDir()
	secrets := filepath.Join(root, "secrets/0")
	for name, text := range map[string]string{"user/userData": "#cloud-config\n", "network/networkdata": "version: 2\n"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(secrets, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600))
	}

	for spec, want := range map[string]map[string]string{
		"{}":                        {"user-data": ""},
		"{userData: '#!/bin/true'}": {"user-data": "#!/bin/true"},
		"{networkData: 'x', userDataBase64: " + base64.StdEncoding.EncodeToString([]byte("$$(A)")) + "}": {"user-data": "$$(A)", "network-config": "x"},
		"{secretRef: {name: s}, networkDataSecretRef: {name: net}}":                                      {"user-data": "#cloud-config\n", "network-config": "version: 2\n"},
	} {
		for range 2 {
			files, err := prepare(t, root, "{domain: {}, hostname: shop, volumes: [{name: seed, cloudInitNoCloud: "+spec+"}]}", nil)
			require.NoError(t, err, spec)
			require.Equal(t, File{filepath.Join(root, "run/machine/0.iso"), Raw}, files["seed"])

			f, err := os.Open(files["seed"].Path)
			require.NoError(t, err)
			defer f.Close()
			label := make([]byte, 6)
			_, err = f.ReadAt(label, 16*2048+40)
			require.NoError(t, err)
			assert.Equal(t, "cidata", string(label))
			iso, err := iso9660.Read(file.New(f, true), 0, 0, 2048)
			require.NoError(t, err)
			meta, err := iso.ReadFile("meta-data")
			require.NoError(t, err)
			assert.Equal(t, "instance-id: default.web\nlocal-hostname: shop\n", string(meta))
			for name, text := range want {
				have, err := iso.ReadFile(name)
				require.NoError(t, err, name)
				assert.Equal(t, text, string(have), spec)
			}
			_, err = iso.ReadFile("network-config")
			assert.Equal(t, want["network-config"] != "", err == nil, spec)
		}
	}

	_, err := prepare(t, t.TempDir(), "{domain: {}, volumes: [{name: seed, cloudInitNoCloud: {secretRef: {name: s}}}]}", nil)
	assert.EqualError(t, err, "volume seed: user data: the Secret has no key userdata")
	_, err = prepare(t, t.TempDir(), "{domain: {}, volumes: [{name: seed, cloudInitNoCloud: {userDataBase64: '*'}}]}", nil)
	assert.EqualError(t, err, "volume seed: user data: it is not base64")
}

func TestKVMIsTried(t *testing.T) {
	assert.Error(t, CheckKVM("/dev/null"), "a device is no KVM")
	assert.Error(t, CheckKVM(filepath.Join(t.TempDir(), "kvm")))
}
