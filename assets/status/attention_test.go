package status

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTheLevelIsThatOfWhatIsWorst: what needs a person comes before what is on its way, and that before what is good.
func TestTheLevelIsThatOfWhatIsWorst(t *testing.T) {
	inService := Cluster{Name: "edge", State: ClusterReady}
	updated := func(state string) []Cluster {
		return []Cluster{{State: ClusterReady, Updates: []NodeUpdate{{State: state}}}}
	}
	installing := Cluster{Name: "far", State: ClusterInstalling}
	for _, c := range []struct {
		name string
		d    Document // that is Ready, if it does not say otherwise
		want Level
	}{
		{"nothing is asked for", Document{Launch: Launch{State: LaunchNothing}}, LevelGood},
		{"all is in service", Document{
			Launch: Launch{State: LaunchSucceeded}, Clusters: []Cluster{inService},
			Components: []Component{{State: ComponentReady}, {State: ComponentSkipped}, {State: ComponentSuspended}},
			Source:     &Source{State: SourceCurrent}, Stages: []Stage{{State: StateReady, AfterReady: true}},
		}, LevelGood},
		{"a source is lost", Document{Source: &Source{State: SourceLost}}, LevelGood},
		{"an update waits for its window", Document{Clusters: updated("waiting")}, LevelGood},

		{"it comes up", Document{State: StateWorking}, LevelBusy},
		{"it is repaired", Document{State: StateDegraded}, LevelBusy},
		{"nodes are installed", Document{Launch: Launch{State: LaunchRunning}}, LevelBusy},
		{"a cluster is new", Document{Clusters: []Cluster{{State: ClusterNew}}}, LevelBusy},
		{"a cluster waits", Document{Clusters: []Cluster{{State: ClusterWaiting}}}, LevelBusy},
		{"a cluster is installed, by nodes that are proven",
			Document{Launch: Launch{State: LaunchSucceeded}, Clusters: []Cluster{inService, installing}}, LevelBusy},
		{"a cluster is changed", Document{Clusters: []Cluster{{State: "changing"}}}, LevelBusy},
		{"a cluster is removed", Document{Clusters: []Cluster{{State: ClusterDeleting}}}, LevelBusy},
		{"its nodes are updated", Document{Clusters: updated(NodeUpdateUpdating)}, LevelBusy},
		{"a component is applied", Document{Components: []Component{{State: "applying"}}}, LevelBusy},
		{"a revision is applied", Document{Source: &Source{State: SourceWorking}}, LevelBusy},
		{"what follows Ready comes up", Document{Stages: []Stage{{State: StateWorking, AfterReady: true}}}, LevelBusy},

		{"it stopped", Document{State: StateFailed}, LevelBad},
		{"a cluster failed, and another one is installed",
			Document{Clusters: []Cluster{{State: ClusterFailed, Error: "x"}, installing}}, LevelBad},
		{"a cluster is refused while it is changed", Document{Clusters: []Cluster{{State: "changing", Error: "x"}}}, LevelBad},
		{"a node needs a person while others are installed",
			Document{Launch: Launch{State: LaunchRunning}, Nodes: []Node{{Next: "x"}, {}}}, LevelBad},
		{"a component failed, and one waits",
			Document{Components: []Component{{State: ComponentFailed}, {State: "waiting"}}}, LevelBad},
		{"a revision is refused", Document{Source: &Source{State: SourceRefused}}, LevelBad},
	} {
		if c.d.State == "" {
			c.d.State = StateReady
		}
		assert.Equal(t, c.want, c.d.Level(), c.name)
	}
}

// TestWhatIsOnItsWayIsNamed: and what needs a person is not said to be.
func TestWhatIsOnItsWayIsNamed(t *testing.T) {
	u := Document{
		Launch: Launch{State: LaunchRunning},
		Clusters: []Cluster{
			{Name: "a", State: ClusterInstalling},
			{Name: "b", State: ClusterFailed, Error: "x"},
			{Name: "c", State: ClusterReady},
		},
		Components: []Component{
			{Name: "d/a", State: "testing"},
			{Name: "d/b", State: ComponentDegraded},
			{Name: "d/c", State: ComponentReady},
		},
		Stages: []Stage{
			{Name: "links-up", State: StateWorking},
			{Name: "kpa-ready", State: StateWaiting, AfterReady: true},
		},
	}.Underway()
	want := Underway{Launch: true, Clusters: []string{"a"}, Components: []string{"d/a"}, Stages: []string{"kpa-ready"}}
	assert.Equal(t, want, u)
}
