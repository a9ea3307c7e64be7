package mutants

// Signing are faults by which an image that no trusted key has signed is taken.
func Signing() []Mutant {
	const (
		update = "./daemon/appliance/stickupdate"
		signed = "./assets/signature"
	)
	return []Mutant{
		{
			Name:    "what a signature says may be changed",
			File:    "assets/signature/signature.go",
			Old:     "if !ed25519.Verify(key.bytes(),",
			New:     "if false && !ed25519.Verify(key.bytes(),",
			Package: signed,
			Run:     "TestEachChangedByteIsRefused",
		},
		{
			Name:    "a signed file may be changed",
			File:    "assets/signature/signature.go",
			Old:     "if !hashed.Verify(raw, []byte(s.text)) {",
			New:     "if false && !hashed.Verify(raw, []byte(s.text)) {",
			Package: signed,
			Run:     "TestEachChangedByteIsRefused",
		},
		{
			Name:    "a signature has several texts",
			File:    "assets/signature/signature.go",
			Old:     "err != nil || string(again) != s.text {",
			New:     "err != nil || again == nil {",
			Package: signed,
			Run:     "TestEachChangedByteIsRefused",
		},
		{
			Name:    "an update's signature may be that of another image",
			File:    "daemon/appliance/stickupdate/signed.go",
			Old:     "if says.Slot != i.digest {",
			New:     "if false && says.Slot != i.digest {",
			Package: update,
			Run:     "TestWithAKeyKnownOnlyASignedImageIsTaken",
		},
		{
			Name:    "a site that cannot be read trusts everyone",
			File:    "daemon/appliance/stickupdate/signed.go",
			Old:     "	case err != nil:\n	case len(keys) == 0 && o.Signature",
			New:     "	case len(keys) == 0 && o.Signature",
			Package: update,
			Run:     "TestWithAKeyKnownOnlyASignedImageIsTaken",
		},
		{
			Name:    "an update that was taken unsigned is not said",
			File:    "daemon/appliance/stickupdate/updater.go",
			Old:     "if st.Outcome == Kept && r.Unsigned == \"\" {",
			New:     "if st.Outcome == Kept {",
			Package: update,
			Run:     "TestWhatWasTakenUnsignedIsSaid",
		},
		{
			Name:    "GRUB may read another kernel than was checked",
			File:    "daemon/appliance/stickupdate/image.go",
			Old:     "	if err := checkUnambiguous(volume); err != nil {\n		return err\n	}\n",
			New:     "",
			Package: update,
			Run:     "TestABootPartitionThatCanBeReadInTwoWaysIsRefused",
		},
		{
			Name:    "consent to lose a disk is consent to an unsigned image",
			File:    "daemon/metal/metal3/hold.go",
			Old:     "if n.Unsigned != \"\" && d.Step == StepImage {",
			New:     "if n.Unsigned != \"\" && d.Step == StepImage && have.Annotations[AllowWipe] == \"\" {",
			Package: metal3,
			Run:     "TestAHostGetsNoImageThatIsNotSigned",
		},
		{
			Name:    "a host that was applied may have any image",
			File:    "daemon/metal/metal3/applied.go",
			Old:     "		Unsigned:      ap.Trust.CheckImage(h.Spec.Image),\n",
			New:     "",
			Package: metal3,
			Run:     "TestAHostGetsNoImageThatIsNotSigned",
		},
		{
			Name:    "a signature by anyone counts for images of nodes",
			File:    "daemon/metal/provisioning/imagetrust.go",
			Old:     "keys.CheckStatement(s); err == nil {",
			New:     "keys.CheckStatement(s); err == nil || says.SHA256 == \"\" {\n\t\t\tsays.SHA256 = \"any\"",
			Package: "./daemon/metal/provisioning",
			Run:     "TestOnlySignaturesByAKeyOfTheSiteCount",
		},
		{
			Name:    "an attestation is taken for any nonce",
			File:    "assets/attestation/attestation.go",
			Old:     "if !bytes.Equal(quote.ExtraData.Buffer, nonce) {",
			New:     "if false && !bytes.Equal(quote.ExtraData.Buffer, nonce) {",
			Package: "./daemon/appliance/tpm",
			Run:     "TestAnAttestationIsOfOneTPMForOneNonce",
		},
		{
			Name:    "a key that signs anything signs a quote",
			File:    "assets/attestation/attestation.go",
			Old:     "!at.Restricted || !at.SignEncrypt",
			New:     "!at.SignEncrypt",
			Package: "./daemon/appliance/tpm",
			Run:     "TestOnlyWhatTheTPMSaysOfItselfIsAQuote",
		},
		{
			Name:    "a log may leave out all of a PCR",
			File:    "image/measured/log.go",
			Old:     "if !has && !bytes.Equal(",
			New:     "if false && !has && !bytes.Equal(",
			Package: "./image/measured",
			Run:     "TestALogThatIsNotWhatTheTPMMeasuredIsRefused",
		},
		{
			Name:    "a command is what the log calls it",
			File:    "image/measured/log.go",
			Old:     "case !hasDigest(e, command):",
			New:     "case false && !hasDigest(e, command):",
			Package: "./image/measured",
			Run:     "TestWhatDiffersFromAnImageIsNamed|TestALogThatIsNotWhatTheTPMMeasuredIsRefused",
		},
		{
			Name:    "what follows the image's command line counts for nothing",
			File:    "image/measured/compare.go",
			Old:     "for _, word := range words {",
			New:     "for _, word := range words[:0] {",
			Package: "./image/measured",
			Run:     "TestWhatDiffersFromAnImageIsNamed",
		},
	}
}
