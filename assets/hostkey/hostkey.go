// Package hostkey is what the appliance and a server's ramdisk agree on about the SSH host key of an installation. The
// ramdisk makes it, tells the appliance the public half before the disk is written, and puts the private half into the
// config drive, in the place that user data leaves for it: it is on that server alone, and on no wire. The ramdisk's
// side is firstlight_writer.py in overlays/ramdisk.
package hostkey

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// placeLength is how long an ed25519 key without a comment is in OpenSSH's format, in bytes, with its seven ends of
// lines as YAML writes them (\n) in a string of double quotes. It is the same for every key, so that a config drive
// keeps its size: files in it are in one piece.
const placeLength = 387 + 7

// placeName is what a place begins with.
const placeName = "FIRSTLIGHT-HOST-KEY"

// Place stands in user data for the private half until the ramdisk puts it there.
func Place() string { return placeName + strings.Repeat("-", placeLength-len(placeName)) }

// Quote puts the place of a rendered YAML document between double quotes, for the escapes of what it will hold.
func Quote(document string) string { return strings.Replace(document, Place(), `"`+Place()+`"`, 1) }

// HasPlace reports whether user data, as it is, waits for a key.
func HasPlace(userData []byte) bool { return bytes.Contains(userData, []byte(Place())) }

// Fill puts a private key, PEM, into each place of a config drive and reports whether there was one.
func Fill(drive, private []byte) (filled []byte, had bool, err error) {
	place := []byte(Place())
	if !bytes.Contains(drive, place) {
		return drive, false, nil
	}

	escaped := bytes.ReplaceAll(private, []byte("\n"), []byte(`\n`))
	if len(escaped) != len(place) {
		return nil, true, fmt.Errorf("a host key has %d bytes, its place %d", len(escaped), len(place))
	}

	return bytes.ReplaceAll(drive, place, escaped), true, nil
}

// Parse checks a public half that a ramdisk tells, and returns it as in authorized_keys, without a comment.
func Parse(text string) (string, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil:
		return "", fmt.Errorf("SSH host key: %w", err)
	case key.Type() != ssh.KeyAlgoED25519:
		return "", fmt.Errorf("SSH host key: it is of type %s, not %s", key.Type(), ssh.KeyAlgoED25519)
	case len(options) > 0 || len(bytes.TrimSpace(rest)) > 0:
		return "", errors.New("SSH host key: there is more than a key")
	}

	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), nil
}
