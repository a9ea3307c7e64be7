package ipxe

import (
	"errors"
	"fmt"
	"strings"
)

// ErrScript says that a script starts no kernel in a way that another boot program could repeat.
var ErrScript = errors.New("its script cannot be read for another boot program")

// ParseKernel is what the first kernel of a script that someone else wrote is started with, up to its command "boot":
// URLs or paths, and the arguments without those of iPXE's own, which whoever renders them adds: initrd= and BOOTIF=.
func ParseKernel(text []byte) (kernel string, initrds, args []string, err error) {
	for line := range strings.Lines(string(text)) {
		words := commandWords(line)
		switch {
		case len(words) == 0:
		case words[0] == "kernel" && kernel == "":
			if words = withoutOptions(words[1:]); len(words) == 0 {
				return "", nil, nil, fmt.Errorf("%w: kernel without a file", ErrScript)
			}

			kernel = words[0]
			for _, arg := range words[1:] {
				if !strings.HasPrefix(arg, "initrd=") && !strings.HasPrefix(arg, "BOOTIF=") {
					args = append(args, arg)
				}
			}
		case kernel == "":
		case words[0] == "initrd":
			if words = withoutOptions(words[1:]); len(words) != 1 {
				return "", nil, nil, fmt.Errorf("%w: initrd does not name one file", ErrScript)
			}
			initrds = append(initrds, words[0])
		case words[0] == "boot":
			return kernel, initrds, args, nil
		default:
			return "", nil, nil, fmt.Errorf("%w: %q stands between kernel and boot", ErrScript, words[0])
		}
	}

	return "", nil, nil, fmt.Errorf("%w: it starts no kernel", ErrScript)
}

// commandWords are the words of a line up to what iPXE does if the command fails.
func commandWords(line string) []string {
	command, _, _ := strings.Cut(line, "||")
	return strings.Fields(command)
}

// withoutOptions drops --name and --timeout, each with its value.
func withoutOptions(words []string) []string {
	for len(words) > 1 && (words[0] == "--name" || words[0] == "--timeout") {
		words = words[2:]
	}
	return words
}
