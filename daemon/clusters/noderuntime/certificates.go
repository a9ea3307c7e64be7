package noderuntime

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// RenewCertificates renews what kubeadm made on a control plane before it ends; the node's own timer runs
// it every day. The API server and etcd read new certificates by themselves; the two others hold theirs
// from their start and are ended, which the kubelet answers with a new start.
func RenewCertificates(ctx context.Context, dir string, now time.Time, log *slog.Logger) error {
	due, err := dueCertificates(dir, now)
	if err != nil || len(due) == 0 {
		return err
	}

	log.Info("certificates are renewed", "certificates", due)
	for _, command := range [][]string{
		{"kubeadm", "certs", "renew", "all"},
		{"pkill", "-x", "kube-controller"}, // names of processes end after 15 letters
		{"pkill", "-x", "kube-scheduler"},
	} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		var exit *exec.ExitError
		if command[0] == "pkill" && errors.As(err, &exit) && exit.ExitCode() == 1 {
			continue // it does not run, and will read what is new when it does
		}
		if err != nil {
			return fmt.Errorf("run %s: %w: %s", strings.Join(command, " "), err, out)
		}
	}

	return nil
}

// dueCertificates are the certificates below a directory, but for authorities, that have less than a
// third of their life left. One that cannot be read is due as well.
func dueCertificates(dir string, now time.Time) (due []string, err error) {
	err = filepath.WalkDir(filepath.Join(dir, "pki"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".crt" {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if isDue(text, now) {
			due = append(due, path)
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	return due, nil
}

func isDue(text []byte, now time.Time) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return true
	}

	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return true
	}

	return !cert.IsCA && cert.NotAfter.Sub(now) < cert.NotAfter.Sub(cert.NotBefore)/3
}
