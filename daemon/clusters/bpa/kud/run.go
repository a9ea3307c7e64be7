package kud

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// Want is a cluster as it is asked for, with its hosts found.
type Want struct {
	Members       []Node
	Plugins       []string
	PodSubnet     string
	ServiceSubnet string
	Image         string
	Owner         string `json:",omitempty"` // whose uploads its nodes get
	Virtlet       bool
	Rotation      string `json:",omitempty"` // token of a rotation of its authorities that is due
}

// Run is one start of the installer. It is kept on the Job, so that what a run did is known
// however the Provisioning was edited meanwhile.
type Run struct {
	Want
	Action     string
	Nodes      []string          // labels that are added or removed
	Clear      map[string]string `json:",omitempty"` // label to the cluster that let go of the node without clearing it
	Generation int64             // of the Provisioning that it was made for
	Attempt    int32             // from 1

	Provisioning string            `json:",omitempty"` // namespace/name
	UID          string            `json:",omitempty"` // of the Provisioning
	Environment  map[string]string `json:",omitempty"` // what FilterEnvironment left of the owner's
}

// InstalledCluster is what a cluster is made of since its last run that ended well: installed.json
// beside its inventory.
type InstalledCluster struct {
	Provisioning  string // namespace/name
	Job           string // UID of the Job that made it so
	Members       []Node // in the order of the inventory
	Plugins       []string
	PodSubnet     string
	ServiceSubnet string
	Virtlet       bool

	// Of a cluster whose last run failed after its control plane and some nodes were Ready.
	Unready []Node `json:",omitempty"` // that the run began with and that are not Ready: no members, but to be joined or taken out
	Begun   bool   `json:",omitempty"` // the rest of the run, such as plugins, is still to be done
}

// ReadInstalled reads what Bytes wrote.
func ReadInstalled(text []byte) (*InstalledCluster, error) {
	var r InstalledCluster
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read record of cluster: %w", err)
	}
	if r.Provisioning == "" || len(r.Members) == 0 {
		return nil, fmt.Errorf("read record of cluster: it names no Provisioning or no nodes")
	}

	return &r, nil
}

// Encode is the record as a file.
func (r InstalledCluster) Encode() []byte {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		panic(err) // plain data
	}
	return append(text, '\n')
}

// CompletedRecord is the record after a run ended well; have is the one before, nil if there was none.
func (r Run) CompletedRecord(provisioning, job string, have *InstalledCluster) InstalledCluster {
	done := InstalledCluster{
		Provisioning:  provisioning,
		Job:           job,
		Members:       r.Members,
		Plugins:       r.Plugins,
		PodSubnet:     r.PodSubnet,
		ServiceSubnet: r.ServiceSubnet,
		Virtlet:       r.Virtlet,
	}
	if r.Action != contract.Remove {
		return done
	}

	stays := func(all []Node) []Node {
		return slices.DeleteFunc(slices.Clone(all), func(m Node) bool { return slices.Contains(r.Nodes, m.Label) })
	}
	if have == nil || !have.Begun {
		done.Members = stays(r.Members)
		return done
	}

	done.Members, done.Unready, done.Begun = stays(have.Members), stays(have.Unready), true
	if len(done.Unready) == 0 {
		done.Unready = nil
	}

	return done
}

// PartialRecord is the record after an installation failed whose control plane is Ready, with those of the other
// nodes that are; nil if there is nothing to record: the control plane is not whole, or the run was for
// a cluster that is recorded already.
func (r Run) PartialRecord(provisioning, job string, ready []string) *InstalledCluster {
	if r.Action != contract.Install || r.Virtlet {
		return nil
	}

	p := InstalledCluster{
		Provisioning:  provisioning,
		Job:           job,
		PodSubnet:     r.PodSubnet,
		ServiceSubnet: r.ServiceSubnet,
		Begun:         true,
	}
	for _, m := range r.Members {
		switch {
		case slices.Contains(ready, m.Label):
			p.Members = append(p.Members, m)
		case m.Master:
			return nil
		default:
			p.Unready = append(p.Unready, m)
		}
	}

	if len(p.Members) == 0 {
		return nil
	}

	return &p
}

// Reasons why an installed cluster is not changed as asked.
const (
	ControlPlaneFixed = "ControlPlaneFixed"
	SubnetFixed       = "SubnetFixed"
)

// GiveUp is the other way out of what cannot be changed. The nodes know their cluster: without their systems
// anew the one that is created again would be the old one.
const GiveUp = "or give the cluster up: delete this Provisioning, install its nodes' systems again (docs/clusters.md, \"A node of another cluster\"), create it again"

// ImmutableError says that something of an installed cluster cannot be changed.
type ImmutableError struct{ Reason, Sentence string }

func (f *ImmutableError) Error() string { return f.Sentence }

// Next is the run that brings a cluster nearer to what is asked; nil if it is so already. A
// cluster that was never installed has no record. Nodes are taken out before others are
// added, each by a run of its own: a host may be moved from one label to another.
func Next(have *InstalledCluster, want Want) (*Run, error) {
	if have == nil {
		return &Run{Want: want, Action: contract.Install}, nil
	}
	if have.PodSubnet != want.PodSubnet || have.ServiceSubnet != want.ServiceSubnet {
		return nil, &ImmutableError{SubnetFixed, fmt.Sprintf("the networks of an installed cluster cannot be changed: it has PodSubnet %q and ServiceSubnet %q; write these again, "+
			GiveUp, have.PodSubnet, have.ServiceSubnet)}
	}
	if was, is := controlPlanes(have.Members), controlPlanes(want.Members); was != is {
		return nil, &ImmutableError{ControlPlaneFixed, fmt.Sprintf("the control plane of an installed cluster is not changed: it is %s, asked for is %s; write the old masters again, "+
			GiveUp, was, is)}
	}

	var removed, added []string
	changed := have.Begun || !slices.Equal(have.Plugins, want.Plugins)
	before := slices.Concat(have.Members, have.Unready)
	for _, old := range before {
		if now := findNode(want.Members, old.Label); now == nil || now.Host != old.Host {
			removed = append(removed, old.Label)
		}
	}

	for _, now := range want.Members {
		old := findNode(have.Members, now.Label)
		switch {
		case old == nil || old.Host != now.Host:
			added = append(added, now.Label)
		case old.Address != now.Address || old.Master != now.Master || old.Worker != now.Worker:
			changed = true
		}
	}

	switch {
	case len(removed) > 0:
		was := want
		was.Members, was.Plugins = before, have.Plugins
		return &Run{Want: was, Action: contract.Remove, Nodes: removed}, nil
	case len(added) > 0:
		return &Run{Want: want, Action: contract.Add, Nodes: added}, nil
	case changed:
		return &Run{Want: want, Action: contract.Install}, nil
	case want.Rotation != "":
		return &Run{Want: want, Action: contract.Rotate}, nil
	}

	return nil, nil
}

func findNode(members []Node, label string) *Node {
	i := slices.IndexFunc(members, func(m Node) bool { return m.Label == label })
	if i < 0 {
		return nil
	}
	return &members[i]
}

// controlPlanes names the control plane: label=host, sorted.
func controlPlanes(members []Node) string {
	var all []string
	for _, m := range members {
		if m.Master {
			all = append(all, m.Label+"="+m.Host)
		}
	}

	slices.Sort(all)
	return strings.Join(all, ", ")
}

// RetryDelay is how long to wait after a failed attempt.
func RetryDelay(attempt int32) time.Duration {
	return min(10*time.Second<<min(max(attempt, 1)-1, 10), 10*time.Minute)
}
