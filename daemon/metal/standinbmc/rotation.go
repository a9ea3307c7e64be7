package standinbmc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// formerName is the file next to the password that has the one of before. It is there as long as that is taken as well,
// and it is all that is remembered of a rotation: a power cut anywhere is gone on from.
const formerName = "password.former"

const interval = 10 * time.Second // between two rounds

// ErrRotating says that a rotation is not at its end yet.
var ErrRotating = errors.New("the password of the stand-in BMC is being replaced already")

// BeginRotation mints another password. The present one is taken until Ironic has the other one for every node.
func (s *Server) BeginRotation() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	present, err := s.loadPassword()
	if err != nil {
		return err
	}
	former, err := s.loadFormer()
	if err != nil {
		return err
	}
	if former != "" && former != present { // they are the same if the power failed between the two files
		return ErrRotating
	}

	if err := atomicfile.Write(filepath.Join(s.Dir, formerName), []byte(present), 0o600); err != nil {
		return fmt.Errorf("keep former password of stand-in BMC: %w", err)
	}
	_, err = s.mintPassword()
	return err
}

// loadFormer is the password of before; "" if only the present one is taken.
func (s *Server) loadFormer() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, formerName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read former password of stand-in BMC: %w", err)
	}
	return string(text), nil
}

// Run ends a rotation that was begun, also before a power cut, when Ironic has the present password.
func (s *Server) Run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.Round(ctx); err != nil {
			s.Log.Warn("former password of the stand-in BMC is still taken", "error", err)
		}
	}, interval)
	return nil
}

// Round forgets the former password if nobody is waited for.
func (s *Server) Round(ctx context.Context) error {
	s.mu.Lock()
	former, err := s.loadFormer()
	s.mu.Unlock()
	if err != nil || former == "" {
		s.setWaiting(nil)
		return err
	}

	present, err := s.password()
	if err != nil {
		return err
	}
	waiting, err := s.Waiting(ctx, present)
	if err != nil {
		s.setWaiting([]string{err.Error()})
		return err
	}
	s.setWaiting(waiting)
	if len(waiting) > 0 {
		return nil
	}

	if err := os.Remove(filepath.Join(s.Dir, formerName)); err != nil {
		return fmt.Errorf("forget former password of stand-in BMC: %w", err)
	}
	return atomicfile.SyncDir(s.Dir)
}

func (s *Server) setWaiting(nodes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = nodes
}

// Note is how a rotation stands, for people; "" if it waits for no one.
func (s *Server) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return ""
	}
	return "The former password of the stand-in BMC is taken still; " + remote.DescribeWaiting(s.waiting)
}
