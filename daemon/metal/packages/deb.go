package packages

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// Limits of what is believed of a package.
const (
	maxControl     = 1 << 20  // bytes of a control file
	maxControlPart = 64 << 20 // bytes of all control files, unpacked

	// maxDictionary is as many bytes as xz -9 asks for. The file says how many it wants, and would be given them
	// before a byte is unpacked.
	maxDictionary = 64 << 20
)

// ErrNoPackage says that a file is no Debian package.
var ErrNoPackage = errors.New("not a Debian package")

// ReadControl reads the control file of a package (deb(5)): an ar archive with debian-binary, control.tar and
// data.tar. It ends with a newline, and its fields are fit to be part of an index.
func ReadControl(r io.Reader) (string, error) {
	b := bufio.NewReader(r)
	magic := make([]byte, 8)
	if _, err := io.ReadFull(b, magic); err != nil || string(magic) != "!<arch>\n" {
		return "", ErrNoPackage
	}

	for first := true; ; first = false {
		name, size, err := readArHeader(b)
		if err != nil {
			return "", err
		}
		if first && name != "debian-binary" {
			return "", fmt.Errorf("%w: it begins with %q", ErrNoPackage, name)
		}
		if compression, is := strings.CutPrefix(name, "control.tar"); is {
			text, err := controlOf(io.LimitReader(b, size), compression)
			if err != nil {
				return "", err
			}
			return checkControl(text)
		}
		if _, err := io.CopyN(io.Discard, b, size+size%2); err != nil {
			return "", fmt.Errorf("%w: it ends early", ErrNoPackage)
		}
	}
}

// readArHeader reads a header of an ar archive: name, time, owner, group and mode, size, end.
func readArHeader(r io.Reader) (name string, size int64, err error) {
	header := make([]byte, 60)
	if _, err := io.ReadFull(r, header); err != nil {
		return "", 0, fmt.Errorf("%w: it has no control.tar", ErrNoPackage)
	}

	size, err = strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
	if err != nil || size < 0 || string(header[58:]) != "`\n" {
		return "", 0, fmt.Errorf("%w: a header is damaged", ErrNoPackage)
	}

	return strings.TrimSuffix(strings.TrimSpace(string(header[:16])), "/"), size, nil
}

func controlOf(r io.Reader, compression string) (string, error) {
	switch compression {
	case "":
	case ".gz":
		z, err := gzip.NewReader(r)
		if err != nil {
			return "", fmt.Errorf("unpack control.tar.gz: %w", err)
		}
		r = z
	case ".xz":
		z, err := xz.NewReader(r, maxDictionary)
		if err != nil {
			return "", fmt.Errorf("unpack control.tar.xz: %w", err)
		}
		r = z
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(maxControlPart), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return "", fmt.Errorf("unpack control.tar.zst: %w", err)
		}
		defer z.Close()

		r = z
	default:
		return "", fmt.Errorf("unpack control.tar%s: the compression is not known", compression)
	}
	t := tar.NewReader(io.LimitReader(r, maxControlPart))
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%w: it has no control file", ErrNoPackage)
		}
		if err != nil {
			return "", fmt.Errorf("unpack control.tar: %w", err)
		}
		if h.Name != "./control" && h.Name != "control" {
			continue
		}

		text, err := io.ReadAll(io.LimitReader(t, maxControl+1))
		if err == nil && len(text) > maxControl {
			err = fmt.Errorf("the control file has more than %d bytes", maxControl)
		}

		return string(text), err
	}
}

// What a field of an index may be named, and what must be in it.
var (
	fieldForm   = regexp.MustCompile(`^[!-9;-~]+:`)
	packageForm = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	versionForm = regexp.MustCompile(`^[0-9][A-Za-z0-9.+~:-]*$`)
)

// checkControl holds that a control file is one stanza that says what it must and nothing that is the index's
// to say: a package must not be able to describe another one.
func checkControl(text string) (string, error) {
	text = strings.TrimRight(text, "\n") + "\n"
	if bytes.ContainsAny([]byte(text), "\x00\r") {
		return "", fmt.Errorf("%w: its control file is not text", ErrNoPackage)
	}

	for line := range strings.Lines(text) {
		switch {
		case strings.TrimSpace(line) == "":
			return "", fmt.Errorf("%w: its control file has an empty line", ErrNoPackage)
		case line[0] == ' ' || line[0] == '\t':
			continue
		case !fieldForm.MatchString(line):
			return "", fmt.Errorf("%w: %.60q in its control file is no field", ErrNoPackage, line)
		}
		switch name, _, _ := strings.Cut(line, ":"); strings.ToLower(name) {
		case "filename", "size", "sha256", "sha512", "sha1", "md5sum":
			return "", fmt.Errorf("%w: its control file has the field %s", ErrNoPackage, name)
		}
	}

	switch arch := Field(text, "Architecture"); {
	case !packageForm.MatchString(Field(text, "Package")):
		return "", fmt.Errorf("%w: its name %q is none", ErrNoPackage, Field(text, "Package"))
	case !versionForm.MatchString(Field(text, "Version")):
		return "", fmt.Errorf("%w: its version %q is none", ErrNoPackage, Field(text, "Version"))
	case arch != "amd64" && arch != "all":
		return "", fmt.Errorf("it is for %q; nodes are amd64", arch)
	}

	return text, nil
}
