package ipxe

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"firstlight.dev/firstlight/pxe/bootfile"
)

// The alphabets. None holds a space, a quote, a backslash, "$", "#", ";" or "|", which
// are all that iPXE's command lines know besides text.
const (
	alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	inArgument   = alphanumeric + "-._~:/?&=%@+,^()[]{}*!"
	inURL        = alphanumeric + "-._~:/?&=%@+,[]"
	inSentence   = alphanumeric + "-._~:/?=%@+,^()[]{}*! `<>"
)

// maxArgument is well below what iPXE and the kernel's command line (2048 bytes) hold.
const maxArgument = 1024

var errArgument = errors.New("a kernel argument in a script is made of letters, digits and -._~:/?&=%@+,^()[]{}*! and does not begin with & or !")

func checkArgument(arg string) error {
	switch {
	case arg == "" || hasOutside(arg, inArgument):
		return errArgument
	case arg[0] == '&' || arg[0] == '!':
		return errArgument
	case len(arg) > maxArgument:
		return fmt.Errorf("it is longer than %d bytes", maxArgument)
	case strings.HasPrefix(arg, "initrd=") || strings.HasPrefix(arg, "BOOTIF="):
		return errors.New("initrd= and BOOTIF= are added by the server; leave them out")
	}
	return nil
}

// checkURL accepts an absolute http or https URL of plain characters, without user
// information: it would be shown on the console.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case hasOutside(text, inURL) || err != nil:
		return fmt.Errorf("%q has characters that a script cannot hold", text)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%q is neither a path nor an http or https URL", text)
	case u.User != nil:
		return fmt.Errorf("the URL of host %q holds a password; a script must not", u.Host)
	}
	return nil
}

// absoluteURL makes a path below the HTTP root a URL; URLs stay as they are.
func absoluteURL(base, name string) (string, error) {
	if strings.Contains(name, "://") {
		return name, checkURL(name)
	}

	clean, err := bootfile.CleanName(name)
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	if hasOutside(clean, inURL) || strings.ContainsAny(clean, "?%&=") {
		return "", fmt.Errorf("%q has characters that a script cannot hold", name)
	}

	return base + "/" + clean, nil
}

// sanitize makes a text for people harmless: what it may not hold becomes a space, a
// quote becomes a backtick, and it is cut to a console's two lines.
func sanitize(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case out.Len() >= 150:
			return out.String() + "..."
		case r == '\'' || r == '"':
			out.WriteByte('`')
		case r < 0x80 && strings.ContainsRune(inSentence, r):
			out.WriteRune(r)
		case strings.HasSuffix(out.String(), " "):
		default:
			out.WriteByte(' ')
		}
	}
	// No "&": two of them are iPXE's "and then". No "$": it expands settings.
	return strings.TrimSpace(out.String())
}

func hasOutside(text, alphabet string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(alphabet, r) })
}
