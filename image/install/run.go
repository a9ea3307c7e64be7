package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
)

// runningFile, in runDir, says which process is the appliance's systemd.
const runningFile = "running.json"

// nicTimeout is how long the machine may take to find its interfaces after it was started.
const nicTimeout = 10 * time.Second

// Supervise runs the appliance until ctx ends or it is switched off from inside, and gives its interfaces back. It is
// the process of the unit. first is the command line of this program by which container.FirstProcess is reached,
// without its last two words.
func Supervise(ctx context.Context, first []string, log *slog.Logger) error {
	if err := checkUnit(); err != nil {
		return err
	}
	err := supervise(ctx, first, log)
	if err != nil { // systemd shows it until the next start
		_, _ = sd.SdNotify(false, "STATUS="+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}

func supervise(ctx context.Context, first []string, log *slog.Logger) error {
	r, err := Installation{}.Receipt()
	if err != nil {
		return err
	}
	if err := enterSupervisorGroup(); err != nil {
		return err
	}
	if err := giveAllBack(); err != nil { // what a killed process of the unit has left
		return err
	}

	loadRootModules(runUntil(ctx))
	if err := raiseLimits("/proc/sys"); err != nil {
		log.Warn("limits of the kernel are not raised; the appliance may lack some", "error", err)
	}
	if err := awaitNICs(r.NICs, nicTimeout); err != nil {
		return err
	}
	terminal, err := container.OpenTerminal(os.Stdout)
	if err != nil {
		return err
	}
	defer terminal.Close()

	for {
		again, err := superviseOnce(ctx, r, first, terminal.Path, log)
		if err != nil || !again {
			return err
		}
	}
}

// superviseOnce runs the appliance from one start to its end, and reports whether it restarts.
func superviseOnce(
	ctx context.Context,
	r Receipt,
	first []string,
	console string,
	log *slog.Logger,
) (again bool, err error) {
	if err := checkUse(r.NICs); err != nil { // before a trial begins: it is not the new root's fault
		return false, err
	}
	here := Installation{}
	isTrial, err := here.prepareStart()
	if err != nil {
		return false, err
	}
	appliance, err := container.Start(container.Plan{
		Root:    filepath.Join(Dir, rootName),
		Mount:   filepath.Join(Dir, mountDir),
		Data:    filepath.Join(Dir, dataDir),
		Site:    filepath.Join(Dir, siteDir),
		Console: console,
		Cgroup:  cgroupName(),
		Kind:    carrier.Installation,
	}, filepath.Join(Dir, planName), first, func(pid int) error {
		if err := lend(runDir, r.NICs, pid); err != nil {
			return err
		}
		// The machine's own network waits for no more than that: what udev loads at the same time may take minutes.
		if _, err := sd.SdNotify(false, sd.SdNotifyReady); err != nil {
			log.Warn("systemd was not told that the appliance has its interfaces", "error", err)
		}
		return loadModules(bridgeSysctls, runUntil(ctx))
	})
	var inUse *inUseError
	if err != nil && isTrial && !errors.As(err, &inUse) {
		return true, errors.Join(here.endTrial("it does not start: "+err.Error()), giveAllBack())
	}
	if err != nil {
		return false, err
	}
	if err := writeJSON(filepath.Join(runDir, runningFile), appliance.ID); err != nil {
		appliance.Kill()
		return false, err
	}

	failure := ""
	if isTrial {
		failure = here.watchTrial(ctx, appliance, log)
	}
	if failure == "" {
		select {
		case <-appliance.Done():
		case <-ctx.Done():
		}
	}
	if failure != "" || ctx.Err() != nil {
		log.Info("the appliance is switched off")
		switchOff(appliance)
	}

	log.Info("the appliance ended", "how", fmt.Sprint(appliance.Err()))
	if failure != "" {
		return true, errors.Join(here.endTrial(failure), giveAllBack())
	}
	again, err = whatFollows(ctx.Err() != nil, appliance.Err())
	return again, errors.Join(err, giveAllBack())
}

// whatFollows is what to do about the appliance, which has ended: start it again, or nothing if it was switched off,
// from outside or from inside. Any other end is an error, after which the unit is started again.
func whatFollows(isAsked bool, ended error) (again bool, err error) {
	switch {
	case isAsked || container.IsSwitchedOff(ended):
		return false, nil
	case container.Restarts(ended):
		return true, nil
	}
	return false, fmt.Errorf("the appliance's systemd ended: %w", ended)
}

// offTimeout is how long the appliance may take to switch itself off. It survives a power cut, so there is nothing to
// lose after that.
const offTimeout = 30 * time.Second

// powerOff is the signal by which systemd, as process 1, switches its system off: SIGRTMIN+4 of glibc (systemd(1)).
const powerOff = unix.Signal(34 + 4)

// switchOff returns when the appliance has ended.
func switchOff(appliance *process.Child) {
	_ = appliance.ID.Signal(powerOff) // it may end at this moment
	select {
	case <-appliance.Done():
	case <-time.After(offTimeout):
	}
	appliance.Kill()
}

// Command is a command that will run in the appliance, for as long as it is on. The unit is active as soon as it has its
// interfaces, since the machine's network waits for it: then the appliance is waited for.
func (i Installation) Command(ctx context.Context, words ...string) (*exec.Cmd, error) {
	if _, err := i.Receipt(); err != nil {
		return nil, err
	}

	for {
		isActive := i.Systemctl("is-active", "--quiet", UnitName) == nil
		var systemd process.ID
		err := readJSON(i.path(filepath.Join(runDir, runningFile)), &systemd)
		switch {
		case err == nil && systemd.Alive():
			return container.Command(ctx, systemd.PID, words...), nil
		case !isActive:
			return nil, fmt.Errorf("the appliance does not run; systemctl status %s says why", UnitName)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the appliance is still starting: %w", context.Cause(ctx))
		case <-time.After(startInterval):
		}
	}
}

// startInterval is how often it is looked whether an appliance that starts can be entered.
const startInterval = 200 * time.Millisecond

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
