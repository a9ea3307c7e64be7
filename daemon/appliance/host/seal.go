package host

import (
	"strings"

	"firstlight.dev/firstlight/assets/stick"
)

// describeSeal says what opens DATA, and what to do if that protects nothing or may be lost; "" without DATA.
func describeSeal(record stick.StorageInfo) string {
	var text string
	switch {
	case record.Seal == stick.SealNone:
		text = "DATA is not encrypted: an earlier version made it. To encrypt it, make an away copy and restore it " +
			"on a new stick."
	case record.Seal == stick.SealBeside:
		text = "DATA is encrypted, but its key is next to it: whoever has the stick reads it. Switch this machine's TPM 2.0 " +
			"on, or attach a medium labelled " + stick.KeyMediumLabel + " with a file " + stick.KeyFileName + ", and restart."
	case record.Seal == stick.SealKeyFile:
		text = "DATA is encrypted; the file " + stick.KeyFileName + " on the medium " + stick.KeyMediumLabel +
			" opens it at each start."
	case record.Seal == stick.SealTPM && record.KeyFile:
		text = "DATA is encrypted; this machine's TPM opens it, elsewhere its key file."
	case record.Seal == stick.SealTPM:
		text = "DATA is encrypted; this machine's TPM alone opens it, and without this machine it is lost. Make a key " +
			"file: firstlightd key-file."
	}

	return strings.TrimSpace(text + " " + record.SealNote)
}
