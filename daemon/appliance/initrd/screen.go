package initrd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/stick"
)

// What people read when a stick does not boot. Plain ASCII, 76 columns: it must be
// readable on a crash cart and in a photograph.

const rule = "----------------------------------------------------------------------------"

func frameLines(lines ...string) string {
	var b strings.Builder
	b.WriteString(rule + "\n")
	for _, line := range lines {
		b.WriteString(strings.TrimRight("  "+line, " ") + "\n")
	}

	b.WriteString(rule + "\n")
	return b.String()
}

// searchScreen tells what is looked for and what is seen.
func searchScreen(why error, p params, disks []disk, waited time.Duration) string {
	lines := []string{
		fmt.Sprintf("Firstlight %s looks for the stick it was started from (%d s).", p.version, int(waited.Seconds())),
		"",
		"Wanted:  the disk with partition " + stick.PartitionESP + " " + p.esp,
		"State:   " + why.Error(),
		"",
	}
	if len(disks) == 0 {
		lines = append(lines, "Seen:    no disk at all")
	}

	for i, d := range disks {
		head := "         "
		if i == 0 {
			head = "Seen:    "
		}
		lines = append(lines, fmt.Sprintf("%s%-8s %9s  %s", head, d.name, formatSize(d.bytes), d.model),
			"                  "+tableText(d, p.esp))
	}

	lines = append(lines, "", "What to do: "+adviceFor(why), "Nothing is written to any disk. The search continues.")
	return frameLines(lines...)
}

// tableText is one line on what a disk holds.
func tableText(d disk, esp string) string {
	switch {
	case d.reading:
		return "is being read"
	case errors.Is(d.err, stick.ErrNoTable):
		return stick.ErrNoTable.Error() // without the details: lines are short
	case d.err != nil:
		return "cannot be read: " + d.err.Error()
	}

	text := "another disk:"
	for _, e := range d.table.Entries {
		if e.GUID == esp {
			text = "the wanted disk:"
		}
	}

	for i, e := range d.table.Entries {
		if i == 12 {
			return text + fmt.Sprintf(" and %d more", len(d.table.Entries)-i)
		}
		text += " " + sanitize(e.Name)
	}

	return text
}

// sanitize keeps what a foreign disk calls its partitions from drawing on the screen.
func sanitize(name string) string {
	if name == "" {
		return "(unnamed)"
	}
	return strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return '_'
		}
		return r
	}, name)
}

func adviceFor(why error) string {
	switch {
	case errors.Is(why, errDuplicateGUID):
		return "pull one of the two sticks; `firstlight flash` tells sticks apart, dd does not."
	case errors.Is(why, errNoRoot):
		return "the stick is incomplete; write it again with `firstlight flash`."
	default:
		return "wait; or plug the stick into another port."
	}
}

func formatSize(bytes int64) string {
	switch {
	case bytes >= 1<<40:
		return fmt.Sprintf("%.1f TiB", float64(bytes)/(1<<40))
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// handoverLine is the last thing said before systemd runs.
func handoverLine(b stick.BootInfo) string {
	name := strings.TrimSpace(b.Disk.Path + " " + b.Disk.Model)
	return fmt.Sprintf("Firstlight %s: starts from %s (disk %s), root %.12s, machine-id %s (%s)\n",
		b.Version, name, b.Disk.GUID, b.Verity.RootHash, b.MachineID.ID, b.MachineID.Source)
}

// failureScreen tells why a stick that was found does not start.
func failureScreen(b stick.BootInfo, why error) string {
	return frameLines(
		fmt.Sprintf("Firstlight %s found its stick and cannot start from it.", b.Version),
		"",
		"Stick:   "+strings.TrimSpace(b.Disk.Path+" "+b.Disk.Model),
		"Reason:  "+why.Error(),
		"",
		"The stick is damaged: its root does not read back as it was written.",
		"What to do: write it again with `firstlight flash`, or use another stick.",
		"Nothing is written to any disk. Tried again every few seconds.")
}

// stuckScreen is for what no waiting can repair: a wrong command line, missing modules.
func stuckScreen(why error) string {
	return frameLines(
		fmt.Sprintf("Firstlight %s cannot start.", assets.Version),
		"",
		"Reason:  "+why.Error(),
		"",
		"The stick's boot files do not belong together.",
		"What to do: write it again with `firstlight flash`.")
}

// damageScreen is shown, again and again, once the running system's root is found corrupted.
func damageScreen(damage []string) string {
	return frameLines(
		"THE STICK IS DAMAGED: "+damage[len(damage)-1],
		fmt.Sprintf("(%d so far). Every block is checked when it is read; this machine no", len(damage)),
		"longer runs what was written. Programs that need the block fail.",
		"What to do: write the stick again with `firstlight flash`, or use another",
		"one, then restart. What is on "+stick.PartitionData+" stays readable.")
}

// removedScreen is shown once the stick is pulled out of a running machine.
func removedScreen(diskPath string) string {
	return frameLines(
		"THE STICK IS GONE: "+diskPath+" was unplugged, or its port failed.",
		"This machine runs from the stick and cannot go on without it.",
		"What to do: plug it in again and restart the machine.")
}

// ShowStuck says on screen and serial why nothing can be started.
func ShowStuck(why error) {
	io.WriteString(openConsoles(), stuckScreen(why))
}

// openConsoles returns a writer to every console the kernel uses (/proc/consoles): the screen and the
// serial line, whichever of them somebody looks at.
func openConsoles() io.Writer {
	b, err := os.ReadFile("/proc/consoles")
	if err != nil {
		return os.Stderr
	}

	var all []io.Writer
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) > 0 {
			if f, err := os.OpenFile("/dev/"+w[0], os.O_WRONLY|os.O_SYNC, 0); err == nil {
				all = append(all, crlfWriter{f})
			}
		}
	}

	if len(all) == 0 {
		return os.Stderr
	}

	return allWriters(all)
}

// allWriters writes to all, also when one fails: io.MultiWriter stops at the first error.
type allWriters []io.Writer

func (e allWriters) Write(p []byte) (int, error) {
	for _, w := range e {
		_, _ = w.Write(p) // a console that cannot be written to has nobody to tell
	}
	return len(p), nil
}

// crlfWriter starts lines at the left also after a program has set the terminal raw.
type crlfWriter struct{ io.Writer }

func (c crlfWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(c.Writer, "\r"+strings.ReplaceAll(string(p), "\n", "\r\n"))
	return len(p), err
}
