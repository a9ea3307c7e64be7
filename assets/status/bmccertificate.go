package status

import "time"

// BMCCertificate is the certificate that the BMC of a node shows in place of the one that is pinned.
type BMCCertificate struct {
	Endpoint    string    `json:"endpoint"`    // host and port at which it was seen
	Pinned      string    `json:"pinned"`      // SHA-256 of the pinned one, 64 hexadecimal digits; "": not readable
	SHA256      string    `json:"sha256"`      // of its own, DER
	Certificate string    `json:"certificate"` // PEM
	Seen        time.Time `json:"seen"`        // first
}
