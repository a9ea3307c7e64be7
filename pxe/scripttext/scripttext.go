// Package scripttext checks what may stand in the scripts of boot programs, iPXE's and GRUB's. Whatever comes from
// outside (a reason, a kernel argument, a file name, a token) is of a plain alphabet, or refused with a sentence.
package scripttext

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
)

// The alphabets. None holds a quote, a backslash, "$", "#", ";" or "|", and only that of sentences a space: these are
// all that iPXE's command lines know besides text. Between single quotes, GRUB knows the quote alone.
const (
	alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	inArgument   = alphanumeric + "-._~:/?&=%@+,^()[]{}*!"
	inURL        = alphanumeric + "-._~:/?&=%@+,[]"
	inSentence   = alphanumeric + "-._~:/?=%@+,^()[]{}*! `<>"
)

// TokenPlace is where an argument, or a script that someone else wrote, gets the token of its boot.
const TokenPlace = "${token}"

// AddressPlace is where an argument, or a script that someone else wrote, gets the address of the machine that asks.
const AddressPlace = "${address}"

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

// MACName is a MAC address as scripts, their URLs and BOOTIF write it: lower case, with hyphens.
func MACName(mac net.HardwareAddr) string { return strings.ReplaceAll(mac.String(), ":", "-") }

// Arguments are those of the kernel of boot, checked, with its token, and BOOTIF with the port that the machine with
// this MAC booted from. An error names what cannot be put in a script, and never the token.
func Arguments(mac net.HardwareAddr, boot pxe.Boot) ([]string, error) {
	var args []string
	for i, arg := range boot.Args {
		if strings.Contains(arg, TokenPlace) {
			if boot.Token == "" {
				return nil, fmt.Errorf("argument %d asks for a token and there is none", i)
			}
			if hasOutside(boot.Token.Reveal(), alphanumeric+"-._~") {
				return nil, fmt.Errorf("argument %d: the token has characters that a script cannot hold", i)
			}

			shown := arg
			if arg = strings.ReplaceAll(arg, TokenPlace, boot.Token.Reveal()); checkArgument(arg) != nil {
				return nil, fmt.Errorf("argument %d %q: %w", i, shown, errArgument)
			}
		} else if err := checkArgument(arg); err != nil {
			return nil, fmt.Errorf("argument %d %q: %w", i, arg, err)
		}
		args = append(args, arg)
	}
	// The ramdisk must use the port it was booted from, whatever the kernel calls it;
	// "01-" is the hardware type, as PXELINUX writes it and initramfs tools read it.
	return append(args, "BOOTIF=01-"+MACName(mac)), nil
}

// CheckURL accepts an absolute http or https URL of plain characters, without user
// information: it would be shown on the console.
func CheckURL(text string) error {
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

// AbsoluteURL makes a path below the HTTP root a URL; URLs stay as they are.
func AbsoluteURL(base, name string) (string, error) {
	if strings.Contains(name, "://") {
		return name, CheckURL(name)
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

// Sanitize makes a text for people harmless: what it may not hold becomes a space, a
// quote becomes a backtick, and it is cut to a console's two lines.
func Sanitize(text string) string {
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
