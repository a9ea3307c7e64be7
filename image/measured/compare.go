package measured

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/stick"
)

// Compare names, in a line each, what was measured that the image does not start, and what it starts that was not
// measured. None: the machine has booted this image.
func (i Image) Compare(b Boot) []string {
	programs, files := []string{stick.LoaderPath}, []string{stick.InitramfsName} // which the kernel measures
	if len(b.Commands) > 0 {                                                     // GRUB measures
		files = append(files, stick.GrubConfigPath, stick.SlotConfigName, stick.KernelName)
	} else {
		programs = append(programs, stick.KernelName)
	}
	differ := compareDigests("program", b.Programs, i.programs, programs...)
	differ = append(differ, compareDigests("file", b.Files, i.files, files...)...)
	if len(b.CommandLines) == 0 {
		differ = append(differ, "command line: it was not measured")
	}
	for _, line := range b.CommandLines {
		differ = append(differ, i.compareLine(line)...)
	}
	for _, text := range b.Commands {
		if !isCommand(text, i.commands) {
			differ = append(differ, fmt.Sprintf("command of GRUB: it ran %s, which the image does not have", printable(text)))
		}
	}
	return differ
}

// compareDigests compares what was measured of one kind with what the image has of it, by digest, and must have.
func compareDigests(kind string, all []Measurement, has map[string]string, must ...string) (differ []string) {
	var seen []string
	named := map[string]bool{} // by digest: GRUB and kernel may have measured one file
	for _, m := range all {
		if name, ok := has[m.SHA256]; ok {
			seen = append(seen, absolute(name))
			continue
		}
		if named[m.SHA256] {
			continue
		}
		named[m.SHA256] = true
		is := func(must string) bool { return strings.EqualFold(path.Base(must), baseName(m.Name)) }
		if at := slices.IndexFunc(must, is); at >= 0 {
			name := must[at]
			seen = append(seen, absolute(name))
			for digest, other := range has {
				if absolute(other) == absolute(name) {
					differ = append(differ, fmt.Sprintf("%s %s: %s was measured, and the image has %s", kind,
						strings.TrimPrefix(name, "/"), m.SHA256, digest))
				}
			}
			continue
		}
		differ = append(differ, fmt.Sprintf("%s %q: %s was measured, which the image does not have", kind, m.Name, m.SHA256))
	}
	for _, name := range must {
		if !slices.Contains(seen, absolute(name)) {
			differ = append(differ, fmt.Sprintf("%s %s: it was not measured", kind, strings.TrimPrefix(name, "/")))
		}
	}
	return differ
}

// absolute is a file's name for comparisons: FAT knows no case.
func absolute(name string) string { return strings.ToLower("/" + strings.TrimPrefix(name, "/")) }

// baseName is the last part of a name of GRUB's, "(hd0,gpt7)/vmlinuz", or of a firmware's, "\EFI\BOOT\BOOTX64.EFI".
func baseName(name string) string { return path.Base(strings.ReplaceAll(name, `\`, "/")) }

// kernelWord is what GRUB puts first into a command line: the file of the kernel.
var kernelWord = regexp.MustCompile(`^(\([^) ]*\))?/` + regexp.QuoteMeta(stick.KernelName) + `$`)

// compareLine compares a command line word by word, in the order of grub.cfg.
func (i Image) compareLine(line string) (differ []string) {
	words := strings.Split(line, " ")
	if !kernelWord.MatchString(words[0]) {
		differ = append(differ, fmt.Sprintf("command line: it is of the kernel %q", words[0]))
	}

	words = words[1:]
	for _, want := range i.line {
		switch {
		case len(words) > 0 && want.pattern.MatchString(words[0]):
			words = words[1:]
		case want.optional:
		case len(words) > 0 && key(want.text) == key(words[0]):
			differ = append(differ, fmt.Sprintf("command line: it has %s, and the image's %s", printable(words[0]), want.text))
			words = words[1:]
		default:
			differ = append(differ, fmt.Sprintf("command line: it does not have the image's %s", want.text))
		}
	}
	for _, word := range words {
		differ = append(differ, fmt.Sprintf("command line: it has %s, which the image's does not have", printable(word)))
	}
	return differ
}

// RootHash is the hash by which a command line has the root checked; "" if it names none.
func RootHash(line string) string {
	for word := range strings.FieldsSeq(line) {
		if hash, ok := strings.CutPrefix(word, stick.ParamVerity+"="); ok {
			return printable(hash)
		}
	}
	return ""
}
