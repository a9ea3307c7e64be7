// Package release packages what was built for those who do not build it: the image and what lies beside it, the
// command as a Debian package and as an archive, both in one archive for an installation, release notes and digests, in one
// directory named by the version.
// The same commit gives the same bytes.
package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/image/media"
)

// NotesName is the file with the release notes.
const NotesName = "RELEASE-NOTES.md"

// Release is what is packaged.
type Release struct {
	Revision  assets.Revision
	Image     string // the built NAME.img; its other files and SHA256SUMS lie beside it
	Lock      string // file with what the image was built of
	Command   []File // the program firstlight and what belongs to it
	Changelog string // file in the form of Keep a Changelog
	Sign      string // shell command to which SHA256SUMS is appended, such as "minisign -Sm"; empty for no signature
	Out       string // directory in which the release's own is made
}

// Result is what was made.
type Result struct {
	Dir       string   `json:"dir"`
	Files     []string `json:"files"`     // in the order of SHA256SUMS
	Signature string   `json:"signature"` // its file; empty if the release is unsigned
}

// Write makes the release in Out/VERSION, whole or not at all: one that was there is replaced.
func (r *Release) Write(ctx context.Context) (*Result, error) {
	if err := checkRevision(r.Revision); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}

	dir, err := os.MkdirTemp(r.Out, ".part-")
	if err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}
	defer os.RemoveAll(dir)

	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}

	result := &Result{Dir: filepath.Join(r.Out, r.Revision.Version())}
	for _, part := range []func(context.Context, string) ([]string, error){r.addImage, r.addCommand, r.addInstallation, r.addNotes} {
		names, err := part(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("make release: %w", err)
		}
		result.Files = append(result.Files, names...)
	}

	if err := writeSums(ctx, dir, result.Files); err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}
	if result.Signature, err = sign(ctx, r.Sign, dir); err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}

	if err := errors.Join(os.RemoveAll(result.Dir), os.Rename(dir, result.Dir)); err != nil {
		return nil, fmt.Errorf("make release: %w", err)
	}

	return result, nil
}

// checkRevision refuses sources that nobody else can have.
func checkRevision(r assets.Revision) error {
	switch {
	case r.Commit == "":
		return errors.New("make release: the sources are in no git repository; release from a clone")
	case r.IsDirty:
		return errors.New("make release: files differ from the commit; commit them, " +
			"or put them aside: git stash --include-untracked")
	}
	return nil
}

// addImage copies the compressed image, its block map and its list of contents, if they are of this revision.
func (r *Release) addImage(ctx context.Context, dir string) ([]string, error) {
	from, base := filepath.Dir(r.Image), strings.TrimSuffix(filepath.Base(r.Image), ".img")
	text, err := os.ReadFile(filepath.Join(from, media.SumsName))
	if err != nil {
		return nil, fmt.Errorf("read image: %w; build it first", err)
	}

	sums, err := media.ParseSums(string(text))
	if err != nil {
		return nil, err
	}

	bill := filepath.Join(from, base+".spdx.json")
	if err := checkImage(bill, r.Image+media.SuffixZstd, r.Revision.Version()); err != nil {
		return nil, err
	}

	var names []string
	for _, suffix := range []string{".img" + media.SuffixZstd, ".img" + media.SuffixBmap, ".spdx.json"} {
		name := base + "-" + r.Revision.Version() + suffix
		if err := copyFile(filepath.Join(dir, name), filepath.Join(from, base+suffix)); err != nil {
			return nil, err
		}

		digest, err := media.DigestFile(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if want := sums[base+suffix]; digest != want {
			return nil, fmt.Errorf("copy %s: it has sha256 %s, %s says %q; build it again",
				base+suffix, digest, media.SumsName, want)
		}

		names = append(names, name)
	}

	return names, nil
}

// checkImage refuses an image of another version, and one that is for its owner's eyes.
func checkImage(bill, packed, version string) error {
	text, err := os.ReadFile(bill)
	if err != nil {
		return fmt.Errorf("read list of contents: %w", err)
	}

	var contents struct {
		Packages []struct {
			Version string `json:"versionInfo"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &contents); err != nil || len(contents.Packages) == 0 {
		return fmt.Errorf("read list of contents %s: no image is in it: %w", bill, err)
	}
	if got := contents.Packages[0].Version; got != version {
		return fmt.Errorf("the image is %s, the sources are %s; build it first", got, version)
	}

	info, err := os.Stat(packed)
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	if info.Mode().Perm()&0o044 == 0 {
		return fmt.Errorf("%s is readable by its owner alone: a site document with passwords is inside; "+
			"build it without --site", packed)
	}

	return nil
}

// copyFile links a file, or copies it to another file system.
func copyFile(to, from string) error {
	if os.Link(from, to) == nil {
		return nil
	}

	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer in.Close()

	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}

	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}

	return nil
}

func (r *Release) addNotes(_ context.Context, dir string) ([]string, error) {
	text, err := os.ReadFile(r.Changelog)
	if err != nil {
		return nil, fmt.Errorf("read changelog: %w", err)
	}

	notes, err := notesOf(string(text), r.Revision)
	if err != nil {
		return nil, fmt.Errorf("read changelog %s: %w", r.Changelog, err)
	}

	return []string{NotesName}, os.WriteFile(filepath.Join(dir, NotesName), []byte(notes), 0o644)
}

func writeSums(ctx context.Context, dir string, names []string) error {
	sums := map[string]string{}
	for _, name := range names {
		digest, err := media.DigestFile(ctx, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		sums[name] = digest
	}
	return media.WriteSums(dir, names, sums)
}

// sign runs the command on SHA256SUMS, and returns the name of the file that it left beside it.
func sign(ctx context.Context, command, dir string) (string, error) {
	if command == "" {
		return "", nil
	}

	cmd := exec.CommandContext(ctx, "sh", "-c", command+" "+media.SumsName)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, os.Stdin, os.Stderr, os.Stderr // it may ask for a password
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("sign with %q: %w", command, err)
	}

	made, err := filepath.Glob(filepath.Join(dir, media.SumsName+".*"))
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}

	made = slices.DeleteFunc(made, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || info.Size() == 0
	})
	if len(made) != 1 {
		return "", fmt.Errorf("sign with %q: it left %d files %s.* and not one", command, len(made), media.SumsName)
	}

	return filepath.Base(made[0]), nil
}
