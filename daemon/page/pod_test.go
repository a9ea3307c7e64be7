package page

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// webPath is the page of a pod that does not run.
const webPath = "/clusters/edge/pods/default/web"

// recordedPods is a pod with two containers, of which one ends again and again and printed nothing yet.
func recordedPods() (map[workload.PodRef]workload.PodDetails, map[workload.LogRef]workload.Log) {
	web := workload.PodRef{Namespace: "default", Name: "web"}
	return map[workload.PodRef]workload.PodDetails{web: {
			Pod: contents().Pods[0],
			Containers: []workload.Container{
				{Name: "migrate", Image: "migrate:1", State: "Terminated", IsInit: true},
				{Name: "web", Image: "web:1", State: "CrashLoopBackOff", Restarts: 12, HasPrevious: true,
					Reason: "back-off 5m0s; it ended last with Error, exit code 2"},
			},
			Events: contents().Events,
		}}, map[workload.LogRef]workload.Log{
			{Pod: web, Container: "web"}:                   {},
			{Pod: web, Container: "web", IsPrevious: true}: {Text: "starts\n<b>no</b> such file\n", Lines: 2},
			{Pod: web, Container: "migrate"}:               {Text: strings.Repeat("done\n", 500), Lines: 500, IsCut: true},
		}
}

func TestAPodShowsItsContainersAndEvents(t *testing.T) {
	s := newServer(t, rack(10))
	b := logInAs(t, s, Operator)
	assert.Equal(t, webPath, hrefs(b.open("/clusters/edge").id("pod-default/web").all("th"))[0])
	d := b.open(webPath)
	assert.Equal(t, "default/web", d.id("title").text())
	assert.Contains(t, d.id("stands").text(), "CrashLoopBackOff: back-off 5m0s")
	assert.Equal(t, "web CrashLoopBackOff: back-off 5m0s; it ended last with Error, exit code 2 no 12 web:1",
		strings.Join(texts(d.id("container-web").all("th", "td")), " "))
	assert.Contains(t, d.id("container-migrate").text(), "before the others")
	assert.Contains(t, d.id("events").text(), "Warning BackOff Pod default/web: Back-off restarting failed container (9 times)")
	assert.Equal(t, []string{webPath + "/logs/migrate", webPath + "/logs/web", webPath + "/logs/web/previous"},
		hrefs(d.id("logs").all("ul")))

	viewer := logIn(t, s)
	assert.Empty(t, viewer.open(webPath).id("logs").all("a"))
	assert.Contains(t, viewer.open(webPath).id("logs").text(), "They may hold secrets")
	assert.Contains(t, viewer.open(webPath).id("events").text(), "BackOff")
	assert.Equal(t, http.StatusForbidden, viewer.ask("GET", webPath+"/logs/web", "").Code)

	assert.Contains(t, b.open("/clusters/edge/pods/default/gone").id("stands").text(), "pod default/gone is not there any more")
	for _, path := range []string{
		"/clusters/nobody/pods/default/web", "/clusters/edge/pods/default/we%20b", "/clusters/edge/pods/default/web%2Flog",
		webPath + "/logs/we%20b", webPath + "/logs/" + strings.Repeat("x", 300), "/clusters/edge/pods/..%2f/web",
	} {
		assert.Equal(t, http.StatusNotFound, b.ask("GET", path, "").Code, path)
	}
}

func TestALogShowsWhatAContainerPrinted(t *testing.T) {
	b := logInAs(t, newServer(t, rack(10)), Operator)
	d := b.open(webPath + "/logs/web/previous")
	assert.Equal(t, "Log of web in default/web before its last restart", d.id("title").text())
	assert.Equal(t, "starts\n<b>no</b> such file\n", d.all("pre")[0].FirstChild.Data, "it is text, and no markup")
	assert.Contains(t, d.id("log").text(), "2 lines, which is all")
	assert.Contains(t, hrefs(d.all("p")), webPath+"/logs/web")
	assert.Contains(t, b.open(webPath+"/logs/migrate").id("log").text(), "The last 500 lines")
	assert.Contains(t, b.open(webPath+"/logs/web").id("log").text(), "Nothing, as of ")
	assert.Contains(t, b.open(webPath+"/logs/none").id("log").text(), "There was no answer at")
	assert.Contains(t, b.open(webPath+"/logs/none").id("log").text(), "container none is not valid for pod web")

	of := rack(1)
	of.doc.Clusters[0].State = status.ClusterWaiting
	early := logInAs(t, newServer(t, of), Operator)
	assert.Contains(t, early.open(webPath+"/logs/web").id("log").text(), "Its cluster cannot be asked yet.")
	assert.Contains(t, early.open(webPath).id("stands").text(), "Its cluster cannot be asked yet.")
}

// TestALogIsAskedWhileSomebodyReadsIt: once for all, and what is new reaches open pages.
func TestALogIsAskedWhileSomebodyReadsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServerOffline(t, rack(1))
		asked, say := []workload.LogRef{}, make(chan workload.Log)
		s.sources.Log = func(_ context.Context, _ status.Cluster, of workload.LogRef) (workload.Log, error) {
			asked = append(asked, of)
			return <-say, nil
		}
		b := logInAs(t, s, Operator)
		assert.Contains(t, b.open(webPath+"/logs/web/previous").id("log").text(), "It is being asked.")
		before := mustPicture(t, s).version
		say <- workload.Log{Text: "one\n", Lines: 1}
		synctest.Wait()
		assert.NotEqual(t, before, mustPicture(t, s).version)
		assert.Contains(t, b.open(webPath+"/logs/web/previous").id("log").text(), "one")

		before = mustPicture(t, s).version
		time.Sleep(11 * time.Second)
		b.open(webPath + "/logs/web/previous")
		say <- workload.Log{Text: "two\n", Lines: 1}
		synctest.Wait()
		assert.NotEqual(t, before, mustPicture(t, s).version, "other text is something new")
		assert.Contains(t, b.open(webPath+"/logs/web/previous").id("log").text(), "two")
		want := workload.LogRef{Pod: workload.PodRef{Namespace: "default", Name: "web"}, Container: "web", IsPrevious: true}
		assert.Equal(t, []workload.LogRef{want, want}, asked)
	})
}

// TestLogsThatAreKeptAreFew: whoever opens many fills no memory.
func TestLogsThatAreKeptAreFew(t *testing.T) {
	s := newServer(t, rack(1))
	b := logInAs(t, s, Operator)
	for i := range 40 {
		b.open("/clusters/edge/pods/default/web-" + strings.Repeat("x", i+1) + "/logs/web")
	}
	assert.Len(t, s.logs.known(), 32)
	assert.LessOrEqual(t, len(mustPicture(t, s).logs), 32)
}
