package simulator

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"strings"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/inspection"
)

// driveLimit is the most that Ironic makes a config drive, in bytes.
const driveLimit = 64 << 20

// unpackDrive is the ISO 9660 image in a step's argument, which is base64 of the compressed image. nil: there is none;
// what is neither stays as it is.
func unpackDrive(raw json.RawMessage) []byte {
	var encoded string
	if json.Unmarshal(raw, &encoded) != nil || encoded == "" {
		return nil
	}

	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader([]byte(encoded))))
	if err != nil {
		return []byte(encoded)
	}

	text, err := io.ReadAll(io.LimitReader(packed, driveLimit))
	if err != nil {
		return []byte(encoded)
	}

	return text
}

// fillDrive puts a new host key into a config drive, as the ramdisk does. public is as in authorized_keys; "": the drive
// has no place for one.
func fillDrive(drive []byte) (filled []byte, public string, err error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, "", err
	}

	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, "", err
	}

	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, "", err
	}

	filled, had, err := hostkey.Fill(drive, pem.EncodeToMemory(block))
	if err != nil || !had {
		return drive, "", err
	}

	return filled, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), nil
}

// readMark is what the ramdisk's collector will find in a config drive that was just written: the metadata, of which
// the file is one piece. nil: no appliance's.
func readMark(text []byte) *inspection.Mark {
	key := bytes.Index(text, []byte(`"metal3-name"`))
	for start := bytes.LastIndexByte(text[:max(key, 0)], '{'); start >= 0; start = bytes.LastIndexByte(text[:start], '{') {
		var data struct {
			Site string `json:"firstlight-site"`
			Node string `json:"metal3-name"`
			UUID string `json:"uuid"`
		}
		if json.NewDecoder(bytes.NewReader(text[start:])).Decode(&data) == nil && data.Site != "" {
			return &inspection.Mark{Site: data.Site, Node: data.Node, ID: data.UUID, Time: driveTime(text)}
		}
	}

	return nil
}

// driveTime is when the image was made, as its primary volume descriptor says (ECMA-119, 8.4.26).
func driveTime(image []byte) string {
	const at = 16*2048 + 813
	if len(image) < at+12 {
		return ""
	}
	t := image[at : at+12]
	return string(t[:4]) + "-" + string(t[4:6]) + "-" + string(t[6:8]) + " " + string(t[8:10]) + ":" + string(t[10:])
}
