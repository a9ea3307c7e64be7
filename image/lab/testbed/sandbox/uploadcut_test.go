package sandbox_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUploadThroughKillsAndAPowerCut: agent killed, power cut, agent killed again, in the middle of one upload; it ends with the sha256 that was announced.
func TestUploadThroughKillsAndAPowerCut(t *testing.T) {
	if !strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ",store-all,") {
		t.Skip("brings up the appliance twice; set FIRSTLIGHT_TEST=native,store-all")
	}
	u := newUploads(t, "upcuts")
	commands, _ := page(t, "By curl")
	u.login(commands[0])
	const length, part = 80<<20 + 1, 8 << 20 // of what is sent, and of a part (docs/artifacts.md)
	large := make([]byte, length)
	_, _ = rand.NewChaCha8([32]byte{11}).Read(large) // never fails
	require.NoError(t, os.WriteFile(filepath.Join(u.dir, "app.tar"), large, 0o644))
	u.must(`cat > sample.json <<EOF
{"owner": "alpha", "image_name": "sample", "image_length": $(stat -c %s app.tar), "sha256": "$(sha256sum app.tar | cut -d ' ' -f 1)"}
EOF
curl --silent --show-error --fail --cacert $CA --header "Authorization: Bearer $TOKEN" --form 'metadata=<sample.json;type=application/json' --form file=@sample.json \
	$H/v1/baremetalcluster/alpha/beta/binary_images`)
	at := int64(0)
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"the agent is killed", func() { u.run("pkill", "-KILL", "-f", "^/usr/bin/firstlightd artifacts") }},
		{"the power is cut", func() { u.cut(); u.begin("[]") }},
		{"the agent is killed again", func() { u.run("pkill", "-KILL", "-f", "^/usr/bin/firstlightd artifacts") }},
	} {
		wait := u.slowUpload(at)
		begun := at
		for u.ctx.Err() == nil && u.offset() < begun+part+part/8+rand.Int64N(part/2) {
			time.Sleep(100 * time.Millisecond)
		}
		sent := u.offset()
		fault.do()
		answer := wait()
		at = u.offset()
		t.Logf("%s at %d: the upload goes on at %d; curl said %q", fault.name, sent, at, strings.TrimSpace(answer))
		assert.GreaterOrEqual(t, at, begun+part, "a part that is whole stays")
		if at == length {
			break // the agent came back in time
		}
	}
	if at < length {
		wait := u.slowUpload(at)
		assert.Contains(t, wait(), "204 No Content")
	}
	out := u.must(`curl --silent --fail --cacert $CA --header "Authorization: Bearer $TOKEN" $H/v1/baremetalcluster/alpha/beta/binary_images/sample; ` +
		`curl --silent --fail --output copy.tar --cacert $CA --header "Authorization: Bearer $TOKEN" $H/v1/baremetalcluster/alpha/beta/binary_images/sample/content; ` +
		`cmp app.tar copy.tar && echo the same`)
	t.Log("\n" + out)
	assert.Contains(t, out, `"upload_complete":true`)
	assert.Contains(t, out, "the same")
}
