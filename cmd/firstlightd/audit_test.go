package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/audit"
)

// TestWhatIsDoneForAPersonIsNotTheAppliancesOwn: the daemon acts on behalf of whoever uses the page.
func TestWhatIsDoneForAPersonIsNotTheAppliancesOwn(t *testing.T) {
	assert.True(t, isOwnRequest(audit.Entry{User: "kubernetes-admin", Program: "firstlightd"}), "of an earlier version")
	assert.False(t, isOwnRequest(audit.Entry{User: "kubernetes-admin", Program: "kubectl"}))
	e := audit.Entry{User: "firstlight:daemon", Program: "firstlightd"}
	assert.True(t, isOwnRequest(e))
	e.As = "firstlight:ann@laptop"
	assert.False(t, isOwnRequest(e))
}

// TestAuditListsWhoChangedWhat: people first, and nothing that a screen would obey.
func TestAuditListsWhoChangedWhat(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "uploads.log")
	log := audit.NewLog(file, slog.New(slog.DiscardHandler))
	add := func(ago time.Duration, user, program string, code int, reason string) {
		r := httptest.NewRequest(http.MethodDelete, "/v1/baremetalcluster/alpha/beta/os_images/x?signature=s3cret", nil)
		r.Header.Set("User-Agent", program)
		log.Add(audit.Request{
			HTTP: r, Received: now.Add(-ago), User: user, Verb: "delete", Code: code, Reason: reason,
			Object: audit.NewArtifact(artifact.Key{Collection: artifact.OS, Owner: "alpha", Cluster: "beta", Name: "x"}),
		})
	}
	add(48*time.Hour, "system:serviceaccount:alpha:old", "curl/8", 204, "")
	add(2*time.Hour, "system:serviceaccount:alpha:ci", "firstlight/0.1 (linux)", 204, "")
	add(time.Hour, "system:serviceaccount:beta:ci", "curl\x1b[2J/8", 403, "it may not")
	add(time.Minute, "firstlight:daemon", "firstlightd/v0", 200, "")
	add(time.Minute, "kubernetes-admin", "kubectl/v1", 200, "")
	add(time.Minute, "system:serviceaccount:bpa:bpa-operator", "firstlightd/v0", 200, "")

	list := func(change func(*auditFlags)) string {
		f := auditFlags{files: []string{file}, since: 24 * time.Hour}
		change(&f)
		var out strings.Builder
		require.NoError(t, f.run(&out, now))
		return out.String()
	}

	assert.Equal(t, strings.TrimPrefix(`
TIME                 WHO                             PROGRAM     FROM       DID     TO                                         RESULT
2026-11-26 10:00:00  system:serviceaccount:alpha:ci  firstlight  192.0.2.1  delete  alpha/os_images.artifact.firstlight.dev/x  204
`, "\n"), list(func(f *auditFlags) { f.user = ":alpha:" }))
	all := list(func(*auditFlags) {})
	assert.Equal(t, 4, strings.Count(all, "\n"), all)
	assert.Contains(t, all, "403 it may not")
	assert.NotContains(t, all, "\x1b")
	assert.NotContains(t, all, "s3cret")
	assert.Equal(t, 6, strings.Count(list(func(f *auditFlags) { f.all = true }), "\n"))
	assert.Contains(t, list(func(f *auditFlags) { f.since = 72 * time.Hour }), ":alpha:old")
}
