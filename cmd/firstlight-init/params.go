package main

import (
	"fmt"
	"regexp"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/stick"
)

// params is what the boot loader told us.
type params struct {
	esp     string // unique GUID of the ESP, lower case
	verity  string // root hash of ROOT-A
	version string // of the image
}

var (
	guidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// parseParams reads the kernel command line; all but the version are required.
func parseParams(cmdline string) (params, error) {
	p := params{version: assets.Version} // a boot loader's file that somebody wrote by hand may name none
	for _, word := range strings.Fields(cmdline) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case stick.ParamESP:
			p.esp = strings.ToLower(value)
		case stick.ParamVerity:
			p.verity = strings.ToLower(value)
		case stick.ParamVersion:
			p.version = value
		}
	}
	if !guidForm.MatchString(p.esp) {
		return p, fmt.Errorf("kernel parameter %s=%q is not a partition's GUID; the boot loader sets it, see %s on the ESP", stick.ParamESP, p.esp, stick.GrubConfigPath)
	}
	if !hashForm.MatchString(p.verity) {
		return p, fmt.Errorf("kernel parameter %s=%q is not a root hash of 64 digits; the builder writes it to %s on the ESP", stick.ParamVerity, p.verity, stick.GrubConfigPath)
	}
	return p, nil
}
