package installer

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// tracker follows the plans of all nodes and of the cluster.
type tracker struct {
	path  string          // contract.FileProgress
	nodes func() []string // those that are Ready in the cluster
	out   io.Writer       // a line for every stage that begins to hold or goes wrong
	wake  chan struct{}

	mu      sync.Mutex
	plans   map[string]bringup.Snapshot // "" is the cluster's own
	order   []string
	printed map[string]string
	best    int // stages that held at once, so far
	percent int // the most that was shown
	since   time.Time
	started time.Time
}

func newTracker(dir string, out io.Writer, order []string) *tracker {
	now := time.Now()
	return &tracker{
		path:    filepath.Join(dir, contract.FileProgress),
		out:     out,
		wake:    make(chan struct{}, 1),
		plans:   map[string]bringup.Snapshot{},
		order:   order,
		printed: map[string]string{},
		since:   now,
		started: now,
	}
}

// update takes in how a plan stands.
func (t *tracker) update(plan string, s bringup.Snapshot) {
	t.mu.Lock()
	t.plans[plan] = s
	for _, st := range s.Stages {
		t.printStage(plan, st)
	}

	if n := t.readyCount(); n > t.best {
		t.best, t.since = n, time.Now()
	}

	p := progressOf(t.plans, t.order)
	if t.nodes != nil {
		p.Ready = t.nodes()
	}

	if len(t.plans) == len(t.order) { // before, it is a part of an unknown whole
		t.percent = max(t.percent, p.Percent)
	}

	p.Percent = t.percent // a stage that is looked at again is no step back
	if err := writeProgress(t.path, p); err != nil {
		fmt.Fprintf(t.out, "progress cannot be shown: %v\n", err)
	}

	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// writeProgress replaces the progress file. It is worth nothing after a power cut and need not reach the disk.
func writeProgress(path string, p contract.Progress) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}

	return os.Rename(path+".new", path)
}

func (t *tracker) readyCount() (n int) {
	for _, s := range t.plans {
		for _, st := range s.Stages {
			if st.State == status.StateReady {
				n++
			}
		}
	}
	return n
}

// printStage prints what became of a stage, once.
func (t *tracker) printStage(plan string, st status.Stage) {
	line := ""
	switch {
	case st.State == status.StateReady:
		line = "ok"
	case st.Error != "":
		line = st.Error
	default:
		return
	}

	name := strings.TrimPrefix(plan+": "+st.Name, ": ")
	if t.printed[name] == line {
		return
	}

	t.printed[name] = line
	fmt.Fprintf(t.out, "%6.1f s  %s: %s\n", time.Since(t.started).Seconds(), name, line)
}

// progressOf sums the plans up.
func progressOf(plans map[string]bringup.Snapshot, order []string) contract.Progress {
	p := contract.Progress{Nodes: map[string]string{}, Doing: "starting"}
	ready, all := 0, 0
	doing := "" // stage of the cluster's own plan
	for _, name := range order {
		s := plans[name]
		at := -1
		for i, st := range s.Stages {
			all++
			if st.State == status.StateReady {
				ready++
			} else if at < 0 {
				at = i
			}
		}

		if name == "" {
			if at >= 0 {
				doing, p.Doing = s.Stages[at].Name, stageText(s.Stages[at])
			} else if len(s.Stages) > 0 {
				p.Doing = "done"
			}
			continue
		}

		p.Nodes[name] = "waiting"
		if at >= 0 {
			p.Nodes[name] = stageText(s.Stages[at])
		} else if len(s.Stages) > 0 {
			p.Nodes[name] = "ready"
		}
	}

	if all > 0 {
		p.Percent = 100 * ready / all
	}

	// An API server answers before kubeadm has done its last steps: until the control plane is made whole,
	// what the cluster's own plan does meanwhile is no step ahead.
	making := slices.ContainsFunc(order, func(name string) bool { return open(plans[name], "control-plane-made") })
	// While the cluster only waits for its nodes, or has no plan, what they do says more.
	if making || !slices.Contains(order, "") || doing == "api-answers" || doing == "nodes-ready" {
		for _, name := range order {
			if d := p.Nodes[name]; d != "" && d != "ready" {
				p.Doing = name + ": " + d
				break
			}
		}
	}

	return p
}

// open tells whether a plan has a stage that does not hold yet.
func open(s bringup.Snapshot, name string) bool {
	return slices.ContainsFunc(
		s.Stages, func(st status.Stage) bool { return st.Name == name && st.State != status.StateReady },
	)
}

// stageText is a stage and what it does or what is wrong, for people, in a line.
func stageText(st status.Stage) string {
	text := st.Waiting
	if text == "" {
		text = st.Error
	}

	if text == "" {
		return st.TitleOrName()
	}

	first, _, _ := strings.Cut(text, "\n")
	return st.TitleOrName() + ": " + first
}

// outcome is how all plans stand together.
type outcome struct {
	done    bool     // everything holds
	failed  []string // what only a person can mend
	open    []string // what else does not hold
	stalled time.Duration
}

func (t *tracker) outcome() outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return outcomeOf(t.plans, t.order, time.Since(t.since))
}

func outcomeOf(plans map[string]bringup.Snapshot, order []string, stalled time.Duration) outcome {
	o := outcome{stalled: stalled}
	seen := 0
	for _, name := range order {
		s, there := plans[name]
		if there {
			seen++
		}
		for _, st := range s.Stages {
			what := strings.TrimPrefix(name+": "+stageText(st), ": ")
			if st.State == status.StateFailed {
				o.failed = append(o.failed, what)
			} else if st.State != status.StateReady {
				o.open = append(o.open, what)
				break
			}
		}
	}

	o.done = seen == len(order) && len(o.failed) == 0 && len(o.open) == 0
	return o
}

// result tells whether nothing but what a person must mend is left to wait for: the others are as far as
// they come without it.
func (o outcome) result(limit time.Duration) error {
	switch {
	case o.done:
		return nil
	case len(o.failed) > 0 && (o.stalled > limit/5 || len(o.open) == 0):
		return bringup.Permanent(fmt.Errorf("%s", strings.Join(o.failed, "; ")))
	case o.stalled > limit:
		return fmt.Errorf("nothing came true for %s: %s", limit, strings.Join(append(o.failed, o.open...), "; "))
	}
	return errGoesOn
}
