package devpush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/devpush"
)

// interval is how often it is asked whether something runs again.
const interval = 250 * time.Millisecond

// restart restarts exactly what runs the programs, and returns when that runs file.
func (a Appliance) restart(ctx context.Context, programs []devpush.Program, file string) error {
	ctx, cancel := context.WithTimeout(ctx, a.Patience)
	defer cancel()

	var errs []error
	for _, p := range programs {
		if p.Unit != "" {
			errs = append(errs, a.restartUnit(ctx, p.Unit, file))
		}
		for _, pods := range p.Pods {
			errs = append(errs, a.restartPods(ctx, pods))
		}
	}
	return errors.Join(errs...)
}

func (a Appliance) report(format string, args ...any) {
	if a.Report != nil {
		a.Report(fmt.Sprintf(format, args...))
	}
}

// await asks until the answer is yes. last is why it is not yet.
func await(ctx context.Context, what string, ask func() (last error)) error {
	for {
		last := ask()
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not run again: %w", what, last)
		case <-time.After(interval):
		}
	}
}

// daemonUnit is the unit of the daemon, which answers when it has started.
const daemonUnit = "firstlightd.service"

func (a Appliance) restartUnit(ctx context.Context, unit, file string) error {
	state, err := a.Run(ctx, "systemctl", "show", "--value", "--property", "ActiveState", unit)
	if err != nil {
		return fmt.Errorf("look for %s: %w: %s", unit, err, strings.TrimSpace(state))
	}
	// One that is being started runs, too: a daemon that does not get that far is why another one is pushed.
	if state = strings.TrimSpace(state); state == "inactive" || state == "failed" {
		a.report("%s does not run; it will with this program when it is started", unit)
		return nil
	}

	a.report("restart %s", unit)
	since := time.Now()
	// It is not waited for: what comes below says more than systemd does.
	if out, err := a.Run(ctx, "systemctl", "restart", "--no-block", unit); err != nil {
		return fmt.Errorf("restart %s: %w: %s", unit, err, strings.TrimSpace(out))
	}
	return await(ctx, unit, func() error {
		pid, err := a.Run(ctx, "systemctl", "show", "--value", "--property", "MainPID", unit)
		pid = strings.TrimSpace(pid)
		if err == nil && !isSame("/proc/"+pid+"/exe", file) {
			err = errors.New("no process of it has this program; journalctl -u " + unit + " says more")
		}
		if err != nil || unit != daemonUnit {
			return err
		}
		return a.Answers(ctx, since)
	})
}

// pod is what matters of a pod while one is replaced by another.
type pod struct {
	name, uid string
	ready     bool
}

// parsePods reads what kubectl prints as a list.
func parsePods(text string) (all []pod, err error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name, UID string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read pods: %w", err)
	}
	for _, item := range list.Items {
		one := pod{name: item.Metadata.Name, uid: item.Metadata.UID}
		for _, c := range item.Status.Conditions {
			one.ready = one.ready || c.Type == "Ready" && c.Status == "True"
		}
		all = append(all, one)
	}
	return all, nil
}

// areReplaced says what is not so yet; nil if none of the pods of before is there, and all that are there are ready.
func areReplaced(before, now []pod) error {
	isOld := func(p pod) bool { return slices.ContainsFunc(before, func(b pod) bool { return b.uid == p.uid }) }
	if k := slices.IndexFunc(now, isOld); k >= 0 {
		return fmt.Errorf("pod %s has not ended", now[k].name)
	}
	if len(now) == 0 { // one of before may have been ending already
		return errors.New("its pod is not there yet")
	}
	if k := slices.IndexFunc(now, func(p pod) bool { return !p.ready }); k >= 0 {
		return fmt.Errorf("pod %s is not ready; kubectl logs in its namespace says more", now[k].name)
	}
	return nil
}

// restartPods deletes the pods; their Deployment makes others.
func (a Appliance) restartPods(ctx context.Context, p devpush.Pods) error {
	selector := []string{"--namespace", p.Namespace, "--selector", p.Selector}
	list := func() ([]pod, error) {
		out, err := a.Run(ctx, "kubectl", append([]string{"get", "pods", "--output", "json"}, selector...)...)
		if err != nil {
			return nil, fmt.Errorf("list pods in %s: %w: %s", p.Namespace, err, strings.TrimSpace(out))
		}
		return parsePods(out)
	}

	before, err := list()
	if err != nil {
		return fmt.Errorf("%w; the program is in place, and its pod has it when it is started again", err)
	}
	if len(before) == 0 {
		a.report("no pod runs it in namespace %s yet; it will with this program when it is started", p.Namespace)
		return nil
	}

	for _, one := range before {
		a.report("replace pod %s in namespace %s", one.name, p.Namespace)
		out, err := a.Run(ctx, "kubectl", "delete", "pod", "--wait=false", "--ignore-not-found", "--namespace", p.Namespace, one.name)
		if err != nil {
			return fmt.Errorf("delete pod %s: %w: %s", one.name, err, strings.TrimSpace(out))
		}
	}
	return await(ctx, "a pod in namespace "+p.Namespace, func() error {
		now, err := list()
		if err != nil {
			return err
		}
		return areReplaced(before, now)
	})
}
