package sitesource

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// TestALostSourceIsAskedAgainSoon, though it is asked once a day as long as it answers; and ever more seldom.
func TestALostSourceIsAskedAgainSoon(t *testing.T) {
	m := newMachine(t, "name: rack-a\nappliance: {follow: {interval: 24h, git: {url: https://git.example/a.git}}}\n")
	asked, isBack := 0, false
	m.Fetch = func(context.Context, Request) (Answer, error) {
		if asked++; !isBack {
			return Answer{}, errors.New("no route to host")
		}
		return Answer{Revision: "main@sha1:1", Files: map[string][]byte{"edge.yaml": []byte(provisioning)}}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx, func() bool { return true }) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.GreaterOrEqual(t, asked, 3)
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		assert.Equal(t, status.SourceLost, m.Status().State)
		assert.LessOrEqual(t, asked, 16)

		isBack = true
		m.Recheck()
		synctest.Wait()
		assert.Equal(t, status.SourceCurrent, m.Status().State)
		isBack = false
		m.Recheck()
		synctest.Wait()
		before := asked
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Greater(t, asked, before, "it was there in between")
		end()
		assert.NoError(t, <-ended)
	})

	pauses := map[time.Duration]bool{}
	for range 100 {
		pause := lostPause(3, time.Hour)
		assert.LessOrEqual(t, pause, 2*time.Minute)
		assert.GreaterOrEqual(t, pause, 90*time.Second)
		pauses[pause] = true
		assert.LessOrEqual(t, lostPause(1000, time.Hour), time.Hour)
		assert.LessOrEqual(t, lostPause(0, time.Second), time.Second)
	}
	assert.Greater(t, len(pauses), 1, "not all appliances ask at once")
}

// TestWhatIsForgottenDuringAStepStaysForgotten: the step would save again what it had read.
func TestWhatIsForgottenDuringAStepStaysForgotten(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", ""))
	r.push("as it is")
	require.Contains(t, m.look(), ": current")
	r.git("commit", "--quiet", "--amend", "--message", "another history")
	r.push("on another history")
	require.Contains(t, m.look(), "history was rewritten")

	fetch := m.Fetch
	m.Fetch = func(ctx context.Context, q Request) (Answer, error) {
		answer, err := fetch(ctx, q)
		require.NoError(t, Forget(m.Path))
		return answer, err
	}
	m.look()
	m.Fetch = fetch
	assert.NoFileExists(t, m.Path)
	select {
	case <-m.kick():
	default:
		assert.Fail(t, "the step is not done again")
	}
	assert.Contains(t, m.look(), ": current")
}

// TestTheProcessThatFetchesIsBounded asks the kernel of one that waits for its source.
func TestTheProcessThatFetchesIsBounded(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "grep NoNewPrivs: /proc/self/status; nice").Output()
	require.NoError(t, err)
	before := string(out)

	asked := make(chan string, 4)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range all {
			dir := filepath.Dir(name)
			line, _ := os.ReadFile(name)
			state, _ := os.ReadFile(dir + "/status")
			if strings.Contains(string(line), fetchArgument) && strings.Contains(string(state), fmt.Sprintf("PPid:\t%d\n", os.Getpid())) {
				limits, _ := os.ReadFile(dir + "/limits")
				stat, _ := os.ReadFile(dir + "/stat")
				environment, _ := os.ReadFile(dir + "/environ")
				_, fields, _ := strings.Cut(string(stat), ") ")
				asked <- fmt.Sprintf("%s%s\nnice %s\n%s", state, limits, strings.Fields(fields)[16], environment)
				break
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	_, err = fetchInAProcess(t.Context(), Request{Git: &Git{URL: server.URL + "/sites.git", Branch: "main", CA: ca}})
	require.Error(t, err)
	seen := <-asked
	assert.Regexp(t, `NoNewPrivs:\s+1\n`, seen)
	assert.Regexp(t, `Max cpu time\s+60\s+60\s`, seen)
	assert.Regexp(t, `Max data size\s+536870912\s+536870912\s`, seen)
	assert.Regexp(t, `\nnice (1[0-9])\n`, seen)
	assert.Contains(t, seen, "GOMAXPROCS=1")

	for range 20 {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "grep NoNewPrivs: /proc/self/status; nice").Output()
		require.NoError(t, err)
		assert.Equal(t, before, string(out), "whatever else the appliance starts is as before")
	}
}

// makeTree makes a tree of Git by hand, and returns its hash.
func (r *gitServer) makeTree(list string) (hash string) {
	cmd := exec.CommandContext(r.t.Context(), "git", "-C", r.dir, "mktree")
	cmd.Stdin = strings.NewReader(list)
	out, err := cmd.Output()
	require.NoError(r.t, err)
	return strings.TrimSpace(string(out))
}

// TestATreeOfTreesIsRefused: a few objects of Git can be a million files.
func TestATreeOfTreesIsRefused(t *testing.T) {
	r := newGitServer(t)
	m := newMachine(t, r.document("rack-a", "first token", ""))
	r.write("sites/rack-a/site.yaml", r.document("rack-a", "[redacted]", ""))
	r.push("as it is")
	require.Contains(t, m.look(), ": current")

	r.write("sites/rack-a/0/x.txt", "x")
	r.push("a leaf")
	leaf := r.git("rev-parse", "HEAD:sites/rack-a/0")
	for range 5 {
		var list strings.Builder
		for n := range 10 {
			fmt.Fprintf(&list, "040000 tree %s\t%d\n", leaf, n)
		}
		leaf = r.makeTree(list.String())
	}
	// Not by the index, which would have a line for each of them.
	site := r.git("rev-parse", "HEAD:sites/rack-a/site.yaml")
	for _, list := range []string{
		"100644 blob " + site + "\tsite.yaml\n040000 tree " + leaf + "\tz\n", "040000 tree TREE\track-a\n", "040000 tree TREE\tsites\n",
	} {
		leaf = r.makeTree(strings.Replace(list, "TREE", leaf, 1))
	}
	r.git("push", "--quiet", "origin", r.git("commit-tree", "-p", "HEAD", "-m", "a bomb", leaf)+":main")
	assert.Contains(t, m.look(), `has more than 20000 files and folders`)
	assert.Equal(t, status.SourceRefused, m.Status().State)
}

// TestABucketWithoutEndIsRefused, whatever its objects are.
func TestABucketWithoutEndIsRefused(t *testing.T) {
	pages := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pages++
		fmt.Fprintf(w, `<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>`+
			`<IsTruncated>%t</IsTruncated><NextContinuationToken>n%d</NextContinuationToken>`, pages < 100, pages)
		for n := range 1000 {
			fmt.Fprintf(w, `<Contents><Key>%06d-%04d.jpg</Key><ETag>"x"</ETag><Size>1</Size></Contents>`, pages, n)
		}
		_, _ = io.WriteString(w, `</ListBucketResult>`)
	}))
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	a, err := Fetch(t.Context(), Request{Bucket: &Bucket{
		Endpoint: server.URL, Region: "us-east-1", Name: "bucket", AccessKey: "a", SecretKey: "b", CA: ca,
	}})
	require.NoError(t, err)
	assert.Contains(t, a.Refusal, `has more than 20000 files and folders`)
	assert.Less(t, pages, 30)
}
