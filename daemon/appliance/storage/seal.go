package storage

import (
	"errors"
	"fmt"
	"slices"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
)

// What DATA is opened by is decided here from facts alone; unlock.go and making.go do it.

// Requirement is what a site asks of the key of DATA (appliance.seal.require of site.yaml).
type Requirement string

const (
	RequireNothing Requirement = ""
	RequireTPM     Requirement = "tpm"
	RequireKeyFile Requirement = "key-file"
	// RequireUnknown: there is a site document, and it cannot be read as YAML.
	RequireUnknown Requirement = "unknown"
)

// means is what this machine has to open a volume by.
type means struct {
	TPM     bool  // a TPM 2.0 that answers
	NoTPM   error // why not
	KeyFile bool  // a medium with a key file is attached
}

// making is what becomes of a stick without DATA.
type making struct {
	Ways    []stick.Seal       // by which it will be opened; none: it is not made
	State   stick.StorageState // if it is not made
	Refusal string             // and why
}

// planMaking decides by what a new DATA is opened. A key beside the data is for machines that have nothing else.
func planMaking(require Requirement, m means) making {
	if require == RequireTPM && !m.TPM {
		return making{State: stick.StorageLocked, Refusal: fmt.Sprintf(
			"%s is not made: site.yaml requires a TPM (appliance.seal.require: tpm), and this machine has none that can be "+
				"used: %v; switch its TPM 2.0 on in the firmware's setup, use another machine, or take the line out of "+
				"site.yaml; then restart", stick.PartitionData, m.NoTPM)}
	}
	if require == RequireKeyFile && !m.KeyFile {
		return making{State: stick.StorageLocked, Refusal: fmt.Sprintf(
			"%s is not made: site.yaml requires a key file (appliance.seal.require: key-file), and no medium labelled %s "+
				"with a file %s is attached; attach it, then restart",
			stick.PartitionData, stick.KeyMediumLabel, stick.KeyFileName)}
	}

	var ways []stick.Seal
	if m.TPM {
		ways = append(ways, stick.SealTPM)
	}
	if m.KeyFile {
		ways = append(ways, stick.SealKeyFile)
	}

	switch {
	case len(ways) > 0:
		return making{Ways: ways}
	case require == RequireUnknown:
		return making{State: stick.StorageVolatile, Refusal: fmt.Sprintf(
			"%s is not made, and state is kept in memory and lost at power off: site.yaml cannot be read, so whether it "+
				"requires a TPM is unknown, and this machine has none; correct site.yaml, then restart", stick.PartitionData)}
	default:
		return making{Ways: []stick.Seal{stick.SealBeside}}
	}
}

// describeForeign says that DATA was opened by what everybody has, although the site requires more; "" if it was not. An
// appliance in use keeps DATA that it made before its site required that. Someone who had the stick in hand may have put
// another DATA in its place, whose keys they know, and nothing on a stick tells the two apart.
func describeForeign(require Requirement, opened stick.Seal) string {
	if require != RequireTPM && require != RequireKeyFile || opened != stick.SealBeside && opened != stick.SealNone {
		return ""
	}
	return fmt.Sprintf("site.yaml requires that DATA is sealed (appliance.seal.require: %s), and at this start it opened "+
		"without: if it was sealed before, someone has put another DATA in its place; then write a new stick, restore an "+
		"away copy on it, and replace the rack's passwords and keys.", require)
}

// resealing is what is changed of a volume that was opened. What is added comes first, and is tried, before anything
// is removed.
type resealing struct {
	Add    []stick.Seal
	Remove []token
}

// planResealing decides what a volume that was opened one way gets for the next boot. A TPM that is here gets the key,
// in place of any other TPM; a key file that is here opens the volume from now on; a key beside the data is removed
// when there is anything else. Tokens are never removed otherwise.
func planResealing(tokens []token, opened token, m means) resealing {
	var r resealing
	has := func(way stick.Seal) bool {
		return slices.ContainsFunc(tokens, func(t token) bool { return t.Way == way })
	}

	byTPM := opened.Way == stick.SealTPM
	if m.TPM && !byTPM {
		r.Add = append(r.Add, stick.SealTPM)
	}
	if m.KeyFile && !has(stick.SealKeyFile) {
		r.Add = append(r.Add, stick.SealKeyFile)
	}

	for _, t := range tokens {
		switch t.Way {
		case stick.SealTPM:
			if t.ID != opened.ID && (byTPM || m.TPM) {
				r.Remove = append(r.Remove, t) // of another machine, or left by a power cut
			}
		case stick.SealBeside:
			if byTPM || m.TPM || opened.Way == stick.SealKeyFile || slices.Contains(r.Add, stick.SealKeyFile) {
				r.Remove = append(r.Remove, t)
			}
		}
	}

	return r
}

// sealOf is the way by which the next boot opens a volume with these tokens, having been opened by one of them.
func sealOf(tokens []token, opened token) stick.Seal {
	for _, way := range []stick.Seal{stick.SealBeside, stick.SealTPM, stick.SealKeyFile} {
		for _, t := range tokens {
			// The TPM of a token that did not open is another machine's.
			if t.Way == way && (way != stick.SealTPM || opened.Way == stick.SealTPM) {
				return way
			}
		}
	}
	return opened.Way
}

// describeLocked says why nothing opened a volume, and what to do.
func describeLocked(tokens []token, m means, unsealed error) string {
	const attach = "attach a medium labelled " + stick.KeyMediumLabel + " with the key file " + stick.KeyFileName +
		", then restart"
	sealed := slices.ContainsFunc(tokens, func(t token) bool { return t.Way == stick.SealTPM })

	var why string
	switch {
	case sealed && !m.TPM:
		why = fmt.Sprintf("it is sealed to a machine's TPM, and this machine has none that can be used: %v; put the stick "+
			"back into its own machine, or ", m.NoTPM)
	case sealed && errors.Is(unsealed, tpm.ErrOtherTPM):
		why = "it is sealed to another machine's TPM, or this one's was cleared; put the stick back into its own machine, or "
	case sealed && errors.Is(unsealed, tpm.ErrMeasurements):
		why = "it is sealed to this machine's TPM, and the firmware's Secure Boot settings are not those of then (PCR 7); " +
			"set them back, or "
	case sealed && unsealed != nil:
		why = fmt.Sprintf("this machine's TPM does not unseal its key: %v; restart, or ", unsealed)
	case len(tokens) == 0:
		return stick.PartitionData + " is not opened: its header names no key; write the stick again with --forget, and " +
			"restore an away copy"
	}

	if m.KeyFile {
		return fmt.Sprintf("%s is not opened: %sthe key file on the medium %s is not its own: %s", stick.PartitionData, why,
			stick.KeyMediumLabel, attach)
	}
	return fmt.Sprintf("%s is not opened: %s%s", stick.PartitionData, why, attach)
}
