// Package hostkey is what the appliance and a server's ramdisk agree on about the SSH host key of an installation. The
// ramdisk makes it, tells the appliance the public half before the disk is written, and puts the private half into the
// config drive, in the place that user data leaves for it: it is on that server alone, and on no wire. The ramdisk's
// side is firstlight_writer.py in overlays/ramdisk.
package hostkey

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// keyLength is how long an ed25519 key without a comment is in OpenSSH's format, in bytes. It is the same for every key,
// so that a config drive keeps its size: files in it are in one piece.
const keyLength = 387

// Place stands in user data of YAML for the private half until the ramdisk puts it there, with the seven ends of its
// lines as YAML writes them (\n) in a string of double quotes.
func Place() string { return padRight("FIRSTLIGHT-HOST-KEY", "-", keyLength+7) }

// Base64Place stands for the private half where user data has it in base64, as a data URL of Ignition does. It is base64
// itself: Ignition's checks take it.
func Base64Place() string {
	return padRight("FIRSTLIGHT/HOST/KEY", "/", base64.StdEncoding.EncodedLen(keyLength))
}

func padRight(name, pad string, length int) string {
	return name + strings.Repeat(pad, length-len(name))
}

// Quote puts the place of a rendered YAML document between double quotes, for the escapes of what it will hold.
func Quote(document string) string { return strings.Replace(document, Place(), `"`+Place()+`"`, 1) }

// HasPlace reports whether user data, as it is, waits for a key.
func HasPlace(userData []byte) bool {
	return bytes.Contains(userData, []byte(Place())) || bytes.Contains(userData, []byte(Base64Place()))
}

// Fill puts a private key, PEM, into each place of a config drive and reports whether there was one.
func Fill(drive, private []byte) (filled []byte, had bool, err error) {
	if !HasPlace(drive) {
		return drive, false, nil
	}

	if len(private) != keyLength {
		return nil, true, fmt.Errorf("a host key has %d bytes, not %d", len(private), keyLength)
	}

	filled = bytes.ReplaceAll(drive, []byte(Place()), bytes.ReplaceAll(private, []byte("\n"), []byte(`\n`)))
	filled = bytes.ReplaceAll(filled, []byte(Base64Place()), []byte(base64.StdEncoding.EncodeToString(private)))
	if len(filled) != len(drive) {
		return nil, true, fmt.Errorf("with a host key, a config drive of %d bytes has %d", len(drive), len(filled))
	}
	return filled, true, nil
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
