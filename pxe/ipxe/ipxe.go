// Package ipxe writes the script that iPXE is sent: one per machine, from what Booter
// says. Whatever comes from outside (a reason, a kernel argument, a file name) is either
// of a plain alphabet or refused: iPXE expands ${...}, splits at ";", "||" and "&&" and
// would run what is smuggled in (CVE-2026-46447 is of that kind).
package ipxe

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"text/template"

	"firstlight.dev/firstlight/pxe"
)

// script is what the templates see: checked strings only.
type script struct {
	MAC     string
	Self    string // URL of this script, to ask again
	Word    string
	Reason  string
	Kernel  string
	Initrds []string
	Args    []string
}

// Render writes the script for boot. mac is the machine's; base is http://ADDR:PORT of
// the HTTP server, without a slash at the end. With boot.Script set there is nothing to
// render: that is a file to be sent as it is. An error names what cannot be put in a
// script, and never the token.
func Render(base string, mac net.HardwareAddr, boot pxe.Boot) ([]byte, error) {
	s := script{
		MAC:    mac.String(),
		Self:   base + pxe.ScriptPath + Name(mac),
		Word:   boot.Action.String(),
		Reason: sanitize(boot.Reason),
	}
	if len(mac) != 6 {
		return nil, fmt.Errorf("render script: address %q is not an Ethernet address", mac)
	}
	if err := checkURL(s.Self); err != nil {
		return nil, fmt.Errorf("render script: own address: %w", err)
	}

	name := boot.Action.String()
	if boot.Action == pxe.ActionWait {
		name = "retry"
	}

	if boot.Action == pxe.ActionInspect || boot.Action == pxe.ActionRamdisk {
		name = "ramdisk"
		if err := s.setFiles(base, boot); err != nil {
			return nil, fmt.Errorf("render script for %s: %w", s.MAC, err)
		}
		if err := s.setArguments(mac, boot); err != nil {
			return nil, fmt.Errorf("render script for %s: %w", s.MAC, err)
		}
	}

	var out bytes.Buffer
	if err := parseTemplates().ExecuteTemplate(&out, name, s); err != nil {
		return nil, fmt.Errorf("render script for %s: %w", s.MAC, err)
	}

	return out.Bytes(), nil
}

// Name is the last element of a machine's script URL: its MAC address, lower case, with
// hyphens, as iPXE prints ${mac:hexhyp}.
func Name(mac net.HardwareAddr) string { return strings.ReplaceAll(mac.String(), ":", "-") }

func (s *script) setFiles(base string, boot pxe.Boot) error {
	var err error
	if s.Kernel, err = absoluteURL(base, boot.Kernel); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}

	for i, initrd := range boot.Initrd {
		url, err := absoluteURL(base, initrd)
		if err != nil {
			return fmt.Errorf("initrd %d: %w", i, err)
		}
		s.Initrds = append(s.Initrds, url)
	}

	return nil
}

func (s *script) setArguments(mac net.HardwareAddr, boot pxe.Boot) error {
	for i, arg := range boot.Args {
		if strings.Contains(arg, "${token}") {
			if boot.Token == "" {
				return fmt.Errorf("argument %d asks for a token and there is none", i)
			}
			if hasOutside(boot.Token.Reveal(), alphanumeric+"-._~") {
				return fmt.Errorf("argument %d: the token has characters that a script cannot hold", i)
			}

			shown := arg
			if arg = strings.ReplaceAll(arg, "${token}", boot.Token.Reveal()); checkArgument(arg) != nil {
				return fmt.Errorf("argument %d %q: %w", i, shown, errArgument)
			}
		} else if err := checkArgument(arg); err != nil {
			return fmt.Errorf("argument %d %q: %w", i, arg, err)
		}
		s.Args = append(s.Args, arg)
	}
	// The ramdisk must use the port it was booted from, whatever the kernel calls it;
	// "01-" is the hardware type, as PXELINUX writes it and initramfs tools read it.
	s.Args = append(s.Args, "BOOTIF=01-"+Name(mac))
	return nil
}

// Retry is the script for a machine whose real one is not there yet: it shows the reason
// and asks again.
func Retry(base string, mac net.HardwareAddr, reason string) ([]byte, error) {
	s := script{MAC: mac.String(), Self: base + pxe.ScriptPath + Name(mac), Reason: sanitize(reason)}
	if err := checkURL(s.Self); err != nil {
		return nil, fmt.Errorf("render script: own address: %w", err)
	}

	var out bytes.Buffer
	if err := parseTemplates().ExecuteTemplate(&out, "retry", s); err != nil {
		return nil, fmt.Errorf("render script for %s: %w", s.MAC, err)
	}

	return out.Bytes(), nil
}

func parseTemplates() *template.Template { return template.Must(template.New("").Parse(text)) }
