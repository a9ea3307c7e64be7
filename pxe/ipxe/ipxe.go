// Package ipxe writes the script that iPXE is sent: one per machine, from what Booter
// says. Whatever comes from outside (a reason, a kernel argument, a file name) is either
// of a plain alphabet or refused: iPXE expands ${...}, splits at ";", "||" and "&&" and
// would run what is smuggled in (CVE-2026-46447 is of that kind).
package ipxe

import (
	"bytes"
	"fmt"
	"net"
	"text/template"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/scripttext"
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
		Self:   base + pxe.ScriptPath + scripttext.MACName(mac),
		Word:   boot.Action.String(),
		Reason: scripttext.Sanitize(boot.Reason),
	}
	if len(mac) != 6 {
		return nil, fmt.Errorf("render script: address %q is not an Ethernet address", mac)
	}
	if err := scripttext.CheckURL(s.Self); err != nil {
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
		var err error
		if s.Args, err = scripttext.Arguments(mac, boot); err != nil {
			return nil, fmt.Errorf("render script for %s: %w", s.MAC, err)
		}
	}

	var out bytes.Buffer
	if err := parseTemplates().ExecuteTemplate(&out, name, s); err != nil {
		return nil, fmt.Errorf("render script for %s: %w", s.MAC, err)
	}

	return out.Bytes(), nil
}

func (s *script) setFiles(base string, boot pxe.Boot) error {
	var err error
	if s.Kernel, err = scripttext.AbsoluteURL(base, boot.Kernel); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}

	for i, initrd := range boot.Initrd {
		url, err := scripttext.AbsoluteURL(base, initrd)
		if err != nil {
			return fmt.Errorf("initrd %d: %w", i, err)
		}
		s.Initrds = append(s.Initrds, url)
	}

	return nil
}

func parseTemplates() *template.Template { return template.Must(template.New("").Parse(text)) }
