package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// section is what docs/bringup.md says of one stage.
type section struct {
	name   string
	points map[string]string // Fact, Done, Why
}

func readDocs(t *testing.T) []section {
	b, err := os.ReadFile("../docs/bringup.md")
	require.NoError(t, err)
	_, stages, found := strings.Cut(string(b), "\n## The stages\n")
	require.True(t, found)
	var all []section
	point := regexp.MustCompile(`(?m)^- (Fact|Done|Why): ((?:.+\n)(?:  .+\n)*)`)
	for _, text := range strings.Split(stages, "\n### ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		s := section{name: name, points: map[string]string{}}
		for _, m := range point.FindAllStringSubmatch(rest, -1) {
			s.points[m[1]] = strings.Join(strings.Fields(m[2]), " ")
		}
		all = append(all, s)
	}
	return all
}

// readTitles reads the table of docs/bringup.md: titles of stages by their names.
func readTitles(t *testing.T) map[string]string {
	b, err := os.ReadFile("../docs/bringup.md")
	require.NoError(t, err)
	titles := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| \\[(.+)\\]\\(#(.+)\\) \\| (.+) \\|$").FindAllStringSubmatch(string(b), -1) {
		assert.Equal(t, m[1], m[2], "the link leads elsewhere")
		titles[m[1]] = m[3]
	}
	return titles
}

func TestDocsWalkThroughThePlan(t *testing.T) {
	docs := readDocs(t)
	d := New(slog.New(slog.DiscardHandler))
	var planned, documented []string
	for _, s := range d.runner.Plan {
		planned = append(planned, s.Name)
	}
	for _, s := range docs {
		documented = append(documented, s.name)
	}
	require.Equal(t, planned, documented, "docs/bringup.md and plan.go name different stages, or in another order")
	titles := readTitles(t)
	require.Len(t, titles, len(planned), "the table of docs/bringup.md has other stages")
	for i, s := range d.runner.Plan {
		assert.Equal(t, s.Title, titles[s.Name], "title of %s", s.Name)
		assert.Equal(t, s.Fact, docs[i].points["Fact"], "fact of %s", s.Name)
		assert.Equal(t, s.Why, docs[i].points["Why"], "why of %s", s.Name)
		assert.NotEmpty(t, docs[i].points["Done"], "%s: the page does not say when it is done", s.Name)
	}
}

func TestStagesAreFacts(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	checkStages(t, New(log).runner.Plan)
	checkStages(t, NewGuest(log, guest.Placement{Folder: guest.Folder}).runner.Plan)
}

func checkStages(t *testing.T, plan []bringup.Stage) {
	seen, titled := map[string]bool{}, map[string]bool{}
	for _, s := range plan {
		assert.Regexp(t, `^[a-z][a-z0-9]*(-[a-z]+)*$`, s.Name)
		assert.False(t, seen[s.Name], "%s is there twice", s.Name)
		seen[s.Name] = true
		assert.NotNil(t, s.Done, "%s never asks the world", s.Name)
		assert.NotEmpty(t, s.Fact, s.Name)
		assert.NotEmpty(t, s.Why, s.Name)
		assert.Regexp(t, `^[A-Z].*[a-z]$`, s.Title, "%s: what a person reads in a list, and before a colon", s.Name)
		assert.LessOrEqual(t, len(s.Title), 40, "%s: the screen has 80 columns, and more to say", s.Name)
		assert.False(t, titled[s.Title], "%s: another stage is shown so", s.Name)
		titled[s.Title] = true
	}
}

// Ready comes before what only clusters need: its start would take the processors from the rack's first servers.
func TestWhatOnlyClustersNeedFollowsReady(t *testing.T) {
	var followers []string
	for _, s := range New(slog.New(slog.DiscardHandler)).runner.Plan {
		if s.AfterReady || followers != nil {
			assert.True(t, s.AfterReady, s.Name)
			followers = append(followers, s.Name)
		}
	}
	assert.Equal(t, []string{"packages-ready", "kpa-ready", "cluster-api-ready", "cluster-class-ready", "site-clusters-applied"}, followers)
}

func TestNodesLoadFromTheBootServer(t *testing.T) {
	var paths []string
	for _, m := range New(slog.New(slog.DiscardHandler)).boot.Mounts {
		paths = append(paths, m.Path)
	}
	assert.Equal(t, []string{"/debian/pool/", "/debian/kubernetes/", "/debian/local/", "/binaries/sha256/", "/artifacts/"}, paths)
}

func TestSecondDaemonIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "lock")
	first, err := acquireLock(path)
	require.NoError(t, err)
	_, err = acquireLock(path)
	require.ErrorContains(t, err, "runs already")
	require.NoError(t, first.Close())
	again, err := acquireLock(path)
	require.NoError(t, err, "the lock outlived its daemon")
	require.NoError(t, again.Close())
}

func TestSummaryAndNext(t *testing.T) {
	failed := status.Stage{Name: "site-read", Title: "The site document is read", State: status.StateFailed, Error: "site.yaml:2: a\nsite.yaml:3: b"}
	ready := status.Stage{Name: "links-up", Title: "Networks get their addresses", State: status.StateReady}
	address := []status.Address{{Role: "provisioning", Addresses: []string{"172.22.0.1/24"}}, {Role: "baremetal", Addresses: []string{"10.0.0.7/24"}}}
	for _, c := range []struct {
		name          string
		d             status.Document
		hasKeys       bool
		summary, next string
	}{
		{"first moment", status.Document{State: status.StateWorking, Stages: []status.Stage{{Name: "data-mounted", Title: "Storage is mounted", State: status.StateWorking}}}, false,
			"Storage is mounted: looking", "Nothing to do: it comes up automatically."},
		{"what it does comes before what went wrong", status.Document{State: status.StateWorking, Stages: []status.Stage{ready, {Name: "images-present", Title: "Container images are put in place", State: status.StateWorking, Waiting: "importing", Error: "no space"}}}, false,
			"Container images are put in place: importing", "Nothing to do: it comes up automatically."},
		{"wrong site", status.Document{State: status.StateFailed, Stages: []status.Stage{failed}}, false,
			"The site document is read: site.yaml:2: a", "Correct site.yaml on the stick's SITE partition, then restart this machine: systemctl reboot"},
		{"ready, with a stage that follows", status.Document{State: status.StateReady, Stages: []status.Stage{ready, {Name: "cluster-api-ready", Title: "Cluster API starts", AfterReady: true, State: status.StateWorking, Waiting: "applying"}}}, false,
			"Ready. On its way: 1 of 2 stages. Cluster API starts: applying", "Power on the servers on the provisioning network."},
		{"broken, before what follows", status.Document{State: status.StateDegraded, Stages: []status.Stage{{Name: "links-up", Title: "Networks get their addresses", State: status.StateDegraded, Waiting: "a link"}, {Name: "cluster-api-ready", Title: "Cluster API starts", AfterReady: true, State: status.StateWorking}}}, false,
			"Networks get their addresses: a link", "Nothing to do: it comes up automatically."},
		{"ready, with keys: the owner's network comes first", status.Document{State: status.StateReady, Stages: []status.Stage{ready}, Addresses: address}, true,
			"Ready", "Log in: ssh root@10.0.0.7; page: https://10.0.0.7/"},
		{"ready, without keys", status.Document{State: status.StateReady, Stages: []status.Stage{ready}, Addresses: address}, false,
			"Ready", "Power on the servers on the provisioning network."},
		{"a failed launch comes before the log-in", status.Document{State: status.StateReady, Stages: []status.Stage{ready}, Addresses: address,
			Launch: status.Launch{State: status.LaunchFailed, Nodes: 3, Verified: 1}, Nodes: []status.Node{{Name: "a", Next: "x"}, {Name: "b", Next: "y"}, {Name: "c"}}}, true,
			"Needs you: not launched, 2 of 3 nodes", "Do what is written next to the nodes; firstlightd why NODE says more. Log in: ssh root@10.0.0.7; page: https://10.0.0.7/"},
		{"and the end of its time", status.Document{State: status.StateReady, Stages: []status.Stage{ready}, Launch: status.Launch{State: status.LaunchFailed, Nodes: 3, Verified: 1}}, false,
			"Needs you: not launched, 1 of 3 nodes proven", "See what the nodes wait for: firstlightd why."},
		{"a refused cluster", status.Document{State: status.StateReady, Stages: []status.Stage{ready}, Addresses: address,
			Launch: status.Launch{State: status.LaunchSucceeded}, Clusters: []status.Cluster{{Name: "edge", Error: "x"}}}, true,
			"Needs you: cluster edge", "Do what is written next to the clusters; firstlightd why CLUSTER says more. Log in: ssh root@10.0.0.7; page: https://10.0.0.7/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.d.Addresses) > 0 {
				c.d.Page = "https://10.0.0.7/"
			}
			assert.Equal(t, c.summary, summary(c.d))
			assert.Equal(t, c.next, nextAction(c.d, carrier.Read(t.TempDir()), c.hasKeys))
		})
	}
}
