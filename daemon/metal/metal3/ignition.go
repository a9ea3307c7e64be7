package metal3

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/util"
	ignition "github.com/coreos/ignition/v2/config/v3_3/types"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
)

// Of the system that Ignition sets up. Programs of ours have their shell named: not every image executes files of /etc.
const (
	ignitionHostKey = "/etc/ssh/ssh_host_ed25519_key"
	ignitionGroup   = "firstlight" // of the user: one of his name may be there, and then Ignition fails
	ignitionWayOut  = "/etc/firstlight/way-out"
	wayOutUnit      = `[Unit]
Description=Default route and resolvers of site.yaml
Wants=network.target
After=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh ` + ignitionWayOut + `

[Install]
WantedBy=multi-user.target
`
)

// dataURL is what a URL begins with that has its content in it, in base64 (RFC 2397).
const dataURL = "data:;base64,"

// ignitionData is Ignition's configuration of a node (Ignition, "Configuration Specification v3.3.0"): what userData is
// for cloud-init, and the network, which images of Ignition do not read from a config drive. The version is the first
// that has kernel arguments. It holds no password, only its hash, and no SSH host key, only its place.
func ignitionData(s *site.Site, n site.Node, a Appliance) (string, error) {
	user := ignition.PasswdUser{
		Name:              n.OS.Username,
		PrimaryGroup:      util.StrToPtr(ignitionGroup),
		Shell:             util.StrToPtr("/bin/bash"),
		SSHAuthorizedKeys: ignitionKeys(loginKeys(s, a)),
	}
	if !n.OS.Password.IsZero() {
		hash, err := a.Hash(n.OS.Password.Reveal())
		if err != nil {
			return "", err
		}
		user.PasswordHash = &hash
	}

	c := ignition.Config{
		Ignition: ignition.Ignition{Version: ignition.MaxVersion.String()},
		Passwd: ignition.Passwd{
			Groups: []ignition.PasswdGroup{{Name: ignitionGroup}},
			Users:  []ignition.PasswdUser{user},
		},
	}
	c.Storage.Files = append(
		[]ignition.File{
			hostKeyFile(),
			newFile("/etc/hostname", 0o644, string(n.Name)+"\n"),
			newFile("/etc/sudoers.d/firstlight", 0o440, n.OS.Username+" ALL=(ALL) NOPASSWD:ALL\n"),
		}, timeFiles(a)...,
	)
	if !n.OS.Password.IsZero() {
		c.Storage.Files = append(
			c.Storage.Files, newFile("/etc/ssh/sshd_config.d/10-firstlight.conf", 0o600, "PasswordAuthentication yes\n"),
		)
	}

	data := nodeNetwork(s, n)
	c.Storage.Files = append(c.Storage.Files, networkdFiles(data)...)
	c.Storage.Files = append(c.Storage.Files, networkManagerFiles(data)...)
	if script := wayOut(s, n); script != "" {
		c.Storage.Files = append(c.Storage.Files, newFile(ignitionWayOut, 0o755, script))
		c.Systemd.Units = append(c.Systemd.Units, ignition.Unit{
			Name:     "firstlight-way-out.service",
			Enabled:  util.BoolToPtr(true),
			Contents: util.StrToPtr(wayOutUnit),
		})
	}

	if n.IOMMU {
		for _, argument := range strings.Fields(stick.IOMMUParameters) {
			c.KernelArguments.ShouldExist = append(c.KernelArguments.ShouldExist, ignition.KernelArgument(argument))
		}
	}

	return encodeIgnition(c)
}

// timeFiles have the node follow the appliance's time, with systemd-timesyncd (Flatcar) or chrony (Fedora CoreOS).
func timeFiles(a Appliance) []ignition.File {
	if len(a.Time) == 0 {
		return nil
	}

	var names, servers strings.Builder
	for _, t := range a.Time {
		fmt.Fprintf(&names, " %s", t)
		fmt.Fprintf(&servers, "server %s iburst\n", t)
	}

	return []ignition.File{
		newFile("/etc/systemd/timesyncd.conf.d/60-firstlight.conf", 0o644, "[Time]\nNTP="+names.String()[1:]+"\n"),
		newFile("/etc/chrony.conf", 0o644, servers.String()+"driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\n"),
	}
}

func ignitionKeys(keys []string) (all []ignition.SSHAuthorizedKey) {
	for _, k := range keys {
		all = append(all, ignition.SSHAuthorizedKey(k))
	}
	return all
}

// hostKeyFile is the SSH host key, for the node's own ramdisk to fill in.
func hostKeyFile() ignition.File {
	return newFileOf(ignitionHostKey, 0o600, dataURL+hostkey.Base64Place())
}

func newFile(path string, mode int, content string) ignition.File {
	return newFileOf(path, mode, dataURL+base64.StdEncoding.EncodeToString([]byte(content)))
}

// newFileOf is a file in place of one that the image may bring, with what is at a URL.
func newFileOf(path string, mode int, url string) ignition.File {
	return ignition.File{
		Node:          ignition.Node{Path: path, Overwrite: util.BoolToPtr(true)},
		FileEmbedded1: ignition.FileEmbedded1{Mode: &mode, Contents: ignition.Resource{Source: &url}},
	}
}

// mergeIgnition puts what lets the appliance in as root, and the place of the SSH host key, before a host's own
// configuration of Ignition, which it merges (Ignition, "Operator Notes"): what both have is as the host's own says. The
// version is the host's own, which its image must know. What was merged for another host, or by another appliance, is
// merged once. false: own is no configuration of version 3.
func mergeIgnition(own []byte, key string) (merged string, ok bool, _ error) {
	own = unmergeIgnition(own)
	var is struct {
		Ignition struct{ Version string }
	}
	if json.Unmarshal(own, &is) != nil || !strings.HasPrefix(is.Ignition.Version, "3.") {
		return "", false, nil
	}

	source := dataURL + base64.StdEncoding.EncodeToString(own)
	c := ignition.Config{
		Ignition: ignition.Ignition{
			Version: is.Ignition.Version,
			Config:  ignition.IgnitionConfig{Merge: []ignition.Resource{{Source: &source}}},
		},
		Passwd: ignition.Passwd{
			Users: []ignition.PasswdUser{{Name: "root", SSHAuthorizedKeys: ignitionKeys([]string{key})}},
		},
		Storage: ignition.Storage{Files: []ignition.File{hostKeyFile()}},
	}

	merged, err := encodeIgnition(c)
	return merged, err == nil, err
}

// unmergeIgnition is the host's own configuration of one that mergeIgnition returned; any other stays as it is.
func unmergeIgnition(text []byte) []byte {
	var c ignition.Config
	if !hostkey.HasPlace(text) || json.Unmarshal(text, &c) != nil || len(c.Ignition.Config.Merge) != 1 {
		return text
	}
	source := c.Ignition.Config.Merge[0].Source
	if source == nil || !strings.HasPrefix(*source, dataURL) {
		return text
	}
	own, err := base64.StdEncoding.DecodeString((*source)[len(dataURL):])
	if err != nil {
		return text
	}
	return own
}

func encodeIgnition(c ignition.Config) (string, error) {
	out, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(out), nil
}
