package install

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
)

// unit is what the machine's systemd runs.
//
//go:embed firstlight.service
var unit []byte

// step is a part of an installation.
type step struct {
	does string // what it makes, for people
	done func(ctx context.Context) (bool, error)
	do   func(ctx context.Context) error
}

// steps makes an installation, in this order: the receipt says whose all else is, and the unit comes when all that it
// starts is there.
func (i Installation) steps(o Order, r Receipt) []step {
	return []step{
		{
			does: fmt.Sprintf("make %s, for root alone, with %s", Dir, receiptName),
			done: func(context.Context) (bool, error) { return exists(i.inDir(receiptName)), nil },
			do: func(context.Context) error {
				if err := os.MkdirAll(i.path(Dir), 0o700); err != nil {
					return err
				}
				return errors.Join(os.Chmod(i.path(Dir), 0o700), i.writeReceipt(r))
			},
		},
		{
			does: fmt.Sprintf("copy the root of version %s, %d MiB, to %s", o.Root.Version, o.Root.Bytes>>20,
				filepath.Join(Dir, rootName)),
			done: func(ctx context.Context) (bool, error) {
				err := checkRoot(ctx, i.inDir(rootName), o.Root.Hash)
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
					return false, nil
				}
				return err == nil, err
			},
			do: func(ctx context.Context) error { return copyRoot(ctx, o.Root, i.inDir(rootName)) },
		},
		{
			does: "copy site.yaml to " + filepath.Join(Dir, siteDir),
			// Once the appliance has run, its owner may have edited it there. It is not written by itself.
			done: func(context.Context) (bool, error) {
				return o.Site == nil || r.Complete && exists(i.path(SiteFile)) || i.hasFile(SiteFile, o.Site), nil
			},
			do: func(context.Context) error {
				if err := os.MkdirAll(i.inDir(siteDir), 0o700); err != nil {
					return err
				}
				return atomicfile.Write(i.path(SiteFile), o.Site, 0o600)
			},
		},
		{
			does: "copy this program to " + ProgramPath,
			done: func(context.Context) (bool, error) {
				other, err := differs(i.path(ProgramPath), o.Program)
				return exists(i.path(ProgramPath)) && !other, err
			},
			do: func(context.Context) error { return copyFile(o.Program, i.path(ProgramPath), 0o755) },
		},
		{
			does: "write the unit " + unitPath,
			done: func(context.Context) (bool, error) { return i.hasFile(unitPath, unit), nil },
			do: func(context.Context) error {
				return atomicfile.Write(i.path(unitPath), unit, 0o644)
			},
		},
		{
			does: "enable and start it",
			done: func(context.Context) (bool, error) {
				return r.Complete && i.Systemctl("is-active", "--quiet", UnitName) == nil, nil
			},
			do: func(context.Context) error {
				return errors.Join(i.Systemctl("daemon-reload"), i.Systemctl("enable", UnitName),
					i.Systemctl("start", UnitName))
			},
		},
	}
}

// SiteFile is what the appliance reads, and its owner edits.
const SiteFile = Dir + "/" + siteDir + "/" + siteName

func (i Installation) hasFile(path string, content []byte) bool {
	have, err := os.ReadFile(i.path(path))
	return err == nil && bytes.Equal(have, content)
}

func copyFile(from, to string, mode os.FileMode) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()

	return atomicfile.Copy(to, f, mode)
}

// Decision is what an installation would do.
type Decision struct {
	Refusals []string // reasons against it; none if it may be installed
	Steps    []string // what would be done, in order; what is done already is left out
	NICs     []NIC    // that the appliance gets
	Update   bool     // another root takes the place of the one that is installed

	receipt Receipt
	steps   []step
}

// Decide says what installing the order would do on the machine. It changes nothing. The NICs of the order are found
// here.
func (i Installation) Decide(ctx context.Context, m Machine, s *site.Site, o Order) (d Decision, err error) {
	d.receipt, err = i.Receipt()
	begun := err == nil
	if err != nil && !errors.Is(err, ErrNone) {
		return d, err
	}

	if begun {
		if what := d.receipt.difference(o); what != "" {
			d.Refusals = append(d.Refusals, fmt.Sprintf("%s is installed already; firstlight uninstall --keep-data, then "+
				"install again", what))
		}
	}
	d.Refusals = append(d.Refusals, refusals(m, s, int(o.Root.Bytes>>20), d.receipt.NICs)...)
	if begun && !d.receipt.OwnProgram && m.OtherProgram {
		d.Refusals = append(d.Refusals, fmt.Sprintf("%s, which was there before the appliance, is another version or another "+
			"program; replace it by this one, and run that", ProgramPath))
	}
	if begun && d.receipt.isUpdate(o) {
		m.DiskMiB += i.nextMiB()
		d.Refusals = append(d.Refusals, updateRefusals(m, d.receipt, o)...)
	}
	if len(d.Refusals) > 0 {
		return d, nil
	}

	d.NICs, _ = findNICs(m.Links, s, d.receipt.NICs)
	if !begun {
		d.receipt = Receipt{
			Version:    o.Root.Version,
			RootHash:   o.Root.Hash,
			SiteSHA256: digest(o.Site),
			NICs:       d.NICs,
			OwnProgram: !exists(i.path(ProgramPath)),
		}
	}

	steps := i.steps(o, d.receipt)
	if d.Update = d.receipt.isUpdate(o); d.Update {
		steps = i.updateSteps(o, d.receipt)
	}
	for _, one := range steps {
		done, err := one.done(ctx)
		if err != nil {
			return d, err
		}
		if !done {
			d.Steps = append(d.Steps, one.does)
			d.steps = append(d.steps, one)
		}
	}
	return d, nil
}

// Install does what was decided. It may be interrupted, and decided and run again.
func (i Installation) Install(ctx context.Context, d Decision) error {
	if len(d.Refusals) > 0 {
		return errors.New(d.Refusals[0])
	}

	for _, one := range d.steps {
		i.report("%s", one.does)
		if err := one.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", one.does, err)
		}
	}

	if d.Update { // the unit writes what becomes of it
		return nil
	}
	d.receipt.Complete = true
	return i.writeReceipt(d.receipt)
}
