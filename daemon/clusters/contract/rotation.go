package contract

import (
	"encoding/json"
	"time"
)

// Rotation is how far an installer is with the authorities of a cluster, FileRotation.
type Rotation struct {
	Token  string    `json:"token"` // of who asked for it
	Stage  string    `json:"stage"`
	Signed time.Time `json:"signed,omitzero"` // since when the next authorities sign everywhere
}

// Stages of a rotation, in order.
const (
	RotationTrust  = "trust"  // the next authorities become trusted everywhere, besides the former ones
	RotationSign   = "sign"   // certificates of the next ones take the place of those of the former
	RotationSigned = "signed" // the next ones sign everywhere; the former ones are trusted
	RotationDrop   = "drop"   // the former ones cease to be trusted
	RotationDone   = "done"
)

// RotationSettle is how long the former authorities are trusted after the next ones sign everywhere: a kubelet renews
// the token of a pod when it is a day old, at the latest.
const RotationSettle = 25 * time.Hour

// ReadRotation reads FileRotation; the zero Rotation if it cannot be read.
func ReadRotation(text []byte) Rotation {
	var r Rotation
	if json.Unmarshal(text, &r) != nil {
		return Rotation{}
	}
	return r
}

// IsUnderway reports whether a rotation was begun and is not done.
func (r Rotation) IsUnderway() bool { return r.Stage != "" && r.Stage != RotationDone }

// IsDue reports whether there is something to do by now, for a rotation of this token; "" is none.
func (r Rotation) IsDue(token string, now time.Time, settle time.Duration) bool {
	switch {
	case r.Stage == RotationSigned:
		return !now.Before(r.Signed.Add(settle))
	case r.IsUnderway():
		return true
	}
	return token != "" && r.Token != token
}
