package status

import "time"

// Login is what lets one browser see the appliance's page.
type Login struct {
	URLs        []string  `json:"urls"` // of the page, one for each address
	Code        string    `json:"code"` // can be used once; a secret until then
	Expires     time.Time `json:"expires"`
	Fingerprint string    `json:"fingerprint"` // SHA-256 of the page's certificate, 7A:10:…
	Role        string    `json:"role"`        // of whoever uses it: viewer, operator or owner
	User        string    `json:"user"`        // USER@HOST, as the audit log has it
}
