// Package verify checks a finished image without trusting who made it: both partition
// tables, the file systems, GRUB, every block of the root against the hash that the kernel
// will be told, the digests handed out beside the image, and that whatever the root names
// is in it. It reads with code of its own, not with the libraries that wrote.
package verify

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/image/media"
)

// Finding is one fault. Offset is in bytes from the start of the partition, or of the
// disk where Partition is empty; -1 where there is none.
type Finding struct {
	Check     string `json:"check"`
	Partition string `json:"partition,omitempty"`
	Offset    int64  `json:"offset"`
	Text      string `json:"text"`
}

func (f Finding) String() string {
	where := f.Partition
	if where == "" {
		where = "disk"
	}

	if f.Offset >= 0 {
		where += fmt.Sprintf(" at byte %d", f.Offset)
	}

	return fmt.Sprintf("%s: %s: %s", f.Check, where, f.Text)
}

// Step is one check that ran.
type Step struct {
	Check string        `json:"check"`
	Text  string        `json:"text"` // what it looked at
	Time  time.Duration `json:"nanoseconds"`
}

// Report is what was looked at and what was wrong. No finding means a sound image.
type Report struct {
	Image    string    `json:"image"`
	Size     int64     `json:"bytes"`
	Steps    []Step    `json:"steps"`
	Findings []Finding `json:"findings"`
}

// Options say what to use.
type Options struct {
	Unsquashfs []string // program that unpacks the root, with leading arguments; "unsquashfs" when empty
	Log        *slog.Logger
	Keys       signature.Keys // that must have signed the image; none: nobody asks
}

// check is one image being looked at.
type check struct {
	Options
	image *media.Image
	table *gpt.Table

	files map[string]map[string][]byte // of the FAT partitions, by partition and path
	slots []slot                       // that something can be started from

	step   string
	report *Report
}

// addFinding notes a finding. offset is -1 where there is none.
func (c *check) addFinding(partition string, offset int64, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{c.step, partition, offset, fmt.Sprintf(format, args...)})
}

// Run checks the image at path, raw or .zst. An error means that it could not look; what
// is wrong with the image is in the report.
func Run(ctx context.Context, path string, o Options) (Report, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}

	if len(o.Unsquashfs) == 0 {
		o.Unsquashfs = []string{"unsquashfs"}
	}

	report := Report{Image: path, Findings: []Finding{}}
	image, err := media.Open(ctx, path)
	if err != nil {
		return report, err
	}
	defer image.Close()

	if err := checkIsImage(image); err != nil {
		return report, err
	}

	report.Size = image.Size
	c := &check{Options: o, image: image, report: &report}
	type checkStep struct {
		name string
		run  func(context.Context) (string, error)
	}
	steps := []checkStep{
		{"table", c.partitionTable},  // both copies; the others need to know where things are
		{"digests", c.checkHandouts}, // SHA256SUMS and block map beside it
		{"fat", c.fatSystems},        // ESP, SITE and the boot partitions
		{"boot", c.checkBoot},        // GRUB, kernels, initramfs, root hashes
		{"root", c.checkRoot},        // squashfs and every block of it
		{"closure", c.checkClosure},  // what the root names is in it
	}
	if len(o.Keys) > 0 {
		steps = append(steps, checkStep{"signed", c.checkSignature})
	}

	for _, s := range steps {
		start := time.Now()
		c.step = s.name
		text, err := s.run(ctx)
		if err != nil {
			return report, fmt.Errorf("check %s of %s: %w", s.name, path, err)
		}

		took := time.Since(start)
		o.Log.Info("checked", "check", s.name, "what", text, "took", took.Round(time.Millisecond))
		report.Steps = append(report.Steps, Step{s.name, text, took})
	}

	return report, nil
}

// sectionOf gives the bytes of a partition.
func (c *check) sectionOf(p gpt.Partition) *io.SectionReader {
	return io.NewSectionReader(c.image, p.Offset(), p.Size())
}
