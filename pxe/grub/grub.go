// Package grub writes what Debian's signed GRUB reads when a machine with Secure Boot boots from the network: one
// configuration for all, which asks for one script per machine, and these scripts, from what Booter says, as package
// ipxe has them for iPXE. Whatever comes from outside stands between single quotes, where GRUB knows the quote alone,
// and is of an alphabet without it, or refused.
package grub

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"text/template"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/scripttext"
)

// script is what the templates see: checked strings only.
type script struct {
	Self    string // where the scripts are, without the name of one
	MAC     string
	Word    string
	Reason  string
	Kernel  string
	Initrds []string
	Args    []string
}

// Config is the configuration that GRUB asks for, whatever the machine. base is http://ADDR:PORT of the HTTP server,
// without a slash at the end.
func Config(base string) ([]byte, error) {
	self, err := filePath(base + pxe.GRUBPath)
	if err != nil {
		return nil, fmt.Errorf("render configuration of GRUB: own address: %w", err)
	}
	return execute("config", script{Self: self})
}

// Render writes the script for boot. mac is the machine's; base is as for Config. What boot.Script names is not read.
// An error names what cannot be put in a script, and never the token.
func Render(base string, mac net.HardwareAddr, boot pxe.Boot) ([]byte, error) {
	if len(mac) != 6 {
		return nil, fmt.Errorf("render script of GRUB: address %q is not an Ethernet address", mac)
	}

	s := script{MAC: mac.String(), Word: boot.Action.String(), Reason: scripttext.Sanitize(boot.Reason)}
	name := boot.Action.String()
	if boot.Action == pxe.ActionInspect || boot.Action == pxe.ActionRamdisk {
		name = "ramdisk"
		if err := s.setBoot(base, mac, boot); err != nil {
			return nil, fmt.Errorf("render script of GRUB for %s: %w", s.MAC, err)
		}
	}
	return execute(name, s)
}

func (s *script) setBoot(base string, mac net.HardwareAddr, boot pxe.Boot) (err error) {
	if s.Kernel, err = absolutePath(base, boot.Kernel); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}

	for i, initrd := range boot.Initrd {
		path, err := absolutePath(base, initrd)
		if err != nil {
			return fmt.Errorf("initrd %d: %w", i, err)
		}
		s.Initrds = append(s.Initrds, path)
	}

	s.Args, err = scripttext.Arguments(mac, boot)
	return err
}

// absolutePath is GRUB's name of a path below the HTTP root, or of a URL.
func absolutePath(base, name string) (string, error) {
	absolute, err := scripttext.AbsoluteURL(base, name)
	if err != nil {
		return "", err
	}
	return filePath(absolute)
}

// filePath is a URL as GRUB names files: (http,ADDR:PORT)/PATH. GRUB knows no https, and a server by its name only
// where DHCP gave it a resolver.
func filePath(text string) (string, error) {
	if err := scripttext.CheckURL(text); err != nil {
		return "", err
	}

	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || strings.ContainsAny(text, "?%&") {
		return "", fmt.Errorf("%q is not what GRUB can load; give an http URL without query", text)
	}

	host := u.Host
	if u.Port() == "" {
		host += ":80"
	}
	if at, err := netip.ParseAddrPort(host); err != nil || !at.Addr().Is4() {
		return "", fmt.Errorf("%q is not what GRUB can load; give the server's IPv4 address", text)
	}

	return "(http," + u.Host + ")" + u.Path, nil
}

func execute(name string, s script) ([]byte, error) {
	var out bytes.Buffer
	if err := template.Must(template.New("").Parse(text)).ExecuteTemplate(&out, name, s); err != nil {
		return nil, fmt.Errorf("render script of GRUB: %w", err)
	}
	return out.Bytes(), nil
}
