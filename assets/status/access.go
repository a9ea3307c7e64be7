package status

import "time"

// Access is what `firstlightd certify` answers: access to the appliance's API for one workstation. Nothing in it is
// secret, as the key never leaves the workstation.
type Access struct {
	Server      string    `json:"server"`      // HOST:PORT of the API server, as the appliance reaches it
	Authority   []byte    `json:"authority"`   // PEM, of the API server's certificate
	Certificate []byte    `json:"certificate"` // PEM, of the client
	HostKeys    []string  `json:"hostKeys"`    // of the appliance's sshd, as in authorized_keys: the present one and the next
	Issued      time.Time `json:"issued"`      // by the appliance's clock, and so is the next
	Expires     time.Time `json:"expires"`
}
