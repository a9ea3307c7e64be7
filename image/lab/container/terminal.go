package container

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal is a pseudo terminal whose other end is the appliance's console. What is said there goes to a file.
type Terminal struct {
	Path   string // of the appliance's end
	ends   []*os.File
	copied chan struct{}
}

// OpenTerminal makes a terminal. Close it.
func OpenTerminal(log io.Writer) (*Terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}

	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("unlock terminal: %w", err), master.Close())
	}

	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("name terminal: %w", err), master.Close())
	}

	// Without it the terminal would count as hung up whenever nobody in the appliance has it open.
	path := fmt.Sprintf("/dev/pts/%d", n)
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open terminal: %w", err), master.Close())
	}

	t := &Terminal{Path: path, ends: []*os.File{slave, master}, copied: make(chan struct{})}
	go func() {
		_, _ = io.Copy(log, master) // it ends with the terminal
		close(t.copied)
	}()
	return t, nil
}

// Close ends the terminal.
func (t *Terminal) Close() error {
	err := t.ends[0].Close() // without an open end to write to, reading ends
	<-t.copied
	return errors.Join(err, t.ends[1].Close())
}
