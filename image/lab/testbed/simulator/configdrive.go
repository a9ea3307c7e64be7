package simulator

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"

	"firstlight.dev/firstlight/assets/inspection"
)

// driveLimit is the most that Ironic makes a config drive, in bytes.
const driveLimit = 64 << 20

// readMark is what the ramdisk's collector will find in a config drive that was just written: the metadata, of which
// the file is one piece. nil: no appliance's. raw is a step's argument, base64 of a compressed ISO 9660 image.
func readMark(raw json.RawMessage) *inspection.Mark {
	var encoded string
	if json.Unmarshal(raw, &encoded) != nil {
		return nil
	}

	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader([]byte(encoded))))
	if err != nil {
		return nil
	}

	text, err := io.ReadAll(io.LimitReader(packed, driveLimit))
	if err != nil {
		return nil
	}

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
