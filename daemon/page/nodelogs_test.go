package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// recordedNodeLogs are those of node-000, which is not installed, and of a machine of which there are none.
func recordedNodeLogs() map[string][]NodeLog {
	return map[string][]NodeLog{
		"node-000": {
			{ID: "ramdisk-2026-03-04-05-06-07", Title: "Deploy ramdisk after a failure", Time: time.Unix(1772600767, 0),
				Log: workload.Log{Text: "agent starts\nagent fails: <b>no</b> space\n", Lines: 2}},
			{ID: "ironic", Title: "Ironic, about this node", Log: workload.Log{Text: strings.Repeat("old\n", 280) + strings.Repeat("new\n", 20), Lines: 300, IsCut: true}},
			{ID: "system", Title: "Installed system", Error: "nothing answers at\n172.22.0.51"},
		},
		"node-002":          {{ID: "ironic", Title: "Ironic, about this node"}},
		"52:54:00:99:00:01": {},
	}
}

func TestANodeShowsTheLastLinesOfItsLogs(t *testing.T) {
	s := newServer(t, rack(10))
	b := logInAs(t, s, Operator)
	path := nodeLogsPath("node-000")
	assert.Equal(t, []string{path}, hrefs(b.open("/nodes/node-000").id("logs").all("p")))

	d := b.open(path)
	assert.Equal(t, "Logs of node-000", d.id("title").text())
	ramdisk := d.id("log-ramdisk-2026-03-04-05-06-07")
	assert.Contains(t, ramdisk.text(), "Deploy ramdisk after a failure, 2026-03-04 05:06:07 UTC")
	assert.Equal(t, "agent starts\nagent fails: <b>no</b> space\n", ramdisk.all("pre")[0].FirstChild.Data, "it is text, and no markup")
	assert.NotContains(t, ramdisk.text(), "This is the end of it.")
	assert.Contains(t, d.id("log-ironic").text(), "This is the end of it. The last 300 lines: Ironic, about this node")
	assert.Equal(t, strings.Repeat("new\n", lastLines), d.id("log-ironic").all("pre")[0].FirstChild.Data)
	assert.Equal(t, []string{path + "/ironic"}, hrefs(d.id("log-ironic").all("p")))
	assert.Contains(t, d.id("log-system").text(), "Not all of it could be read: nothing answers at 172.22.0.51")

	one := b.open(path + "/ironic")
	assert.Equal(t, "Log of node-000: Ironic, about this node", one.id("title").text())
	assert.Contains(t, one.id("log").text(), "The last 300 lines; the support bundle has more")
	assert.Contains(t, one.id("log").text(), "old old")
	assert.Contains(t, b.open(path+"/system").id("log").text(), "nothing answers at 172.22.0.51")
	assert.Contains(t, b.open(nodeLogsPath("node-002")).id("log-ironic").text(), "Nothing, as of ")
	assert.Contains(t, b.open(nodeLogsPath("52:54:00:99:00:01")).id("logs").text(), "There are none.")
	assert.Contains(t, b.open(nodeLogsPath("node-002")+"/ironic").id("log").text(), "Nothing, as of ")
	for _, path := range []string{nodeLogsPath("node-003"), nodeLogsPath("node-003") + "/ironic"} {
		assert.Contains(t, b.open(path).id("main").text(), "its secrets cannot be hidden", path)
	}
	for _, path := range []string{path + "/gone", nodeLogsPath("nobody"), nodeLogsPath("nobody") + "/ironic"} {
		assert.Equal(t, http.StatusNotFound, b.ask("GET", path, "").Code, path)
	}
}

// TestLogsOfANodeAreNotForViewers: whoever wrote a program decides what its log has.
func TestLogsOfANodeAreNotForViewers(t *testing.T) {
	s := newServer(t, rack(10))
	s.sources.NodeLogs = nil // it panics
	viewer := logIn(t, s)
	logs := viewer.open("/nodes/node-000").id("logs")
	assert.Empty(t, logs.all("a"))
	assert.Contains(t, logs.text(), "They may hold secrets")
	for _, path := range []string{nodeLogsPath("node-000"), nodeLogsPath("node-000") + "/ironic"} {
		assert.Equal(t, http.StatusForbidden, viewer.ask("GET", path, "").Code, path)
	}
}

// TestLogsOfANodeAreReadWhileSomebodyLooks: once for all, and the page is shown meanwhile.
func TestLogsOfANodeAreReadWhileSomebodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServerOffline(t, rack(1))
		say, asked := make(chan []NodeLog), 0
		s.sources.NodeLogs = func(context.Context, string) ([]NodeLog, error) { asked++; return <-say, nil }
		b := logInAs(t, s, Operator)
		path := nodeLogsPath("node-000")
		assert.Contains(t, b.open(path).id("logs").text(), "It is being asked.")
		assert.Contains(t, b.open(path+"/ironic").id("log").text(), "It is being asked.")
		say <- []NodeLog{{ID: "ironic", Title: "Ironic", Log: workload.Log{Text: "one\n", Lines: 1}}}
		synctest.Wait()
		assert.Contains(t, b.open(path).id("log-ironic").text(), "one")
		assert.Contains(t, b.open(path+"/ironic").id("log").text(), "one")
		assert.Equal(t, 1, asked)
	})
}

// TestLogsOfNodesThatAreKeptAreFew: whoever opens many fills no memory.
func TestLogsOfNodesThatAreKeptAreFew(t *testing.T) {
	s := newServer(t, rack(200))
	b := logInAs(t, s, Operator)
	for i := range 40 {
		b.open(nodeLogsPath(fmt.Sprintf("node-%03d", i)))
	}
	assert.Len(t, s.nodeLogs.known(), 16)
}

func TestTheLastLinesOfALog(t *testing.T) {
	for _, c := range []struct{ text, last string }{
		{"", ""}, {"a", "a"}, {"a\n", "a\n"}, {"a\nb", "a\nb"}, {"a\nb\nc\n", "b\nc\n"}, {"a\nb\nc", "b\nc"}, {"\n\n\n", "\n\n"},
	} {
		assert.Equal(t, c.last, lastOf(c.text, 2), "%q", c.text)
	}
}
