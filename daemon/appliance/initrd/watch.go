package initrd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/stick"
)

// WatchArgument, as the name it is started by, makes firstlight-init the watcher instead of PID 1. systemd spares
// processes whose name starts with @ when it stops all others (its document on root
// storage daemons), so the watcher lives as long as the root it watches.
const WatchArgument = "@firstlight-watch"

// startWatcher starts the process that outlives switch_root and says on screen and
// serial when the root is found corrupted or the stick is pulled. It opens all it needs
// before it reports itself ready: the initramfs around it will be deleted.
func startWatcher(verityDevice, diskPath string) (stop func(), err error) {
	ready, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	defer ready.Close()

	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{WatchArgument, verityDevice, diskPath}
	cmd.ExtraFiles = []*os.File{w}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start watcher: %w", err)
	}

	w.Close()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("start watcher: %w", cmd.Wait())
	}

	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}, nil
}

// Watch is the watcher: it says on screen and serial what happens to the root on verityDevice and to the stick at
// diskPath. It returns only if it cannot begin.
func Watch(verityDevice, diskPath string) error {
	consoles := openConsoles()
	// The directory, not its path: /run will be moved away from under us.
	run, err := unix.Open(stick.RunDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", stick.RunDir, err)
	}

	socket, err := openUevents()
	if err != nil {
		return err
	}

	events := make(chan uevent, 16)
	go readUevents(socket, events)
	// The stick may never again be readable: keep our own pages.
	_ = unix.Mlockall(unix.MCL_CURRENT) // without it we may be paged out, but initramfs pages are never
	ready := os.NewFile(3, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return fmt.Errorf("report ready: %w", err)
	}

	ready.Close()

	w := watcher{device: verityDevice, disk: diskPath}
	again := time.NewTicker(20 * time.Second) // other programs write on the screen too
	for {
		select {
		case e := <-events:
			if line := w.handleEvent(e); line != "" {
				appendLine(run, line)
				io.WriteString(consoles, w.screen())
			}
		case <-again.C:
			if text := w.screen(); text != "" {
				io.WriteString(consoles, text)
			}
		}
	}
}

// watcher is what has been seen so far.
type watcher struct {
	device, disk string
	damage       []string
	removed      bool
}

// handleEvent takes an event and returns a line for the record, "" if it is not about the root
// or known already.
func (w *watcher) handleEvent(e uevent) string {
	if e["SUBSYSTEM"] != "block" {
		return ""
	}

	node := "/dev/" + e["DEVNAME"]
	// The kernel names the block as TYPE,NUMBER; type 0 is data, 1 the hash tree.
	if bad, ok := e["DM_VERITY_ERR_BLOCK_NR"]; ok && node == w.device {
		kind, number, _ := strings.Cut(bad, ",")
		part := "block"
		if kind == "1" {
			part = "hash block"
		}

		line := fmt.Sprintf("%s %s of the root is not what was written", part, number)
		for _, known := range w.damage {
			if known == line {
				return ""
			}
		}

		w.damage = append(w.damage, line)
		return line
	}
	if e["ACTION"] == "remove" && node == w.disk && !w.removed {
		w.removed = true
		return "the stick " + w.disk + " was unplugged"
	}

	return ""
}

// screen is what there is to say, "" if all is well.
func (w *watcher) screen() string {
	switch {
	case w.removed:
		return removedScreen(w.disk)
	case len(w.damage) > 0:
		return damageScreen(w.damage)
	}
	return ""
}

// appendLine writes to damage in the run directory, for the daemon's status.
func appendLine(dir int, line string) {
	fd, err := unix.Openat(dir, damageName, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return // the screen says it
	}
	defer unix.Close(fd)

	_, _ = unix.Write(fd, []byte(line+"\n"))
}
