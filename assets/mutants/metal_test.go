package mutants

// Metal are faults of what is done with servers and with uploads.
func Metal() []Mutant {
	return []Mutant{
		{
			Name:    "the image of a host in service may be changed",
			File:    "daemon/metal/metal3/policy.go",
			Old:     "update + `variables.allowed || (` + sameImage",
			New:     "update + `true || (` + sameImage",
			Package: metal3,
			Run:     "TestTheAPIServerGuardsHostsInService",
			Kinds:   "native",
		},
		{
			Name:    "Secrets are written after the host",
			File:    "daemon/metal/metal3/reconciler.go",
			Old:     "if err := s.applyChanged(ctx, now, secrets...); err != nil {\n\t\treturn err\n\t}\n",
			New:     "defer func() { _ = s.applyChanged(ctx, now, secrets...) }()\n",
			Package: metal3,
		},
		{
			Name:    "a host that its owner paused is resumed",
			File:    "daemon/metal/metal3/next.go",
			Old:     "if have.Annotations[annotationPaused] == pausedBy {",
			New:     "if have.Annotations[annotationPaused] != \"\" {",
			Package: metal3,
		},
		{
			Name:    "a host with a BIOS is installed for UEFI",
			File:    "daemon/metal/metal3/applied.go",
			Old:     "spec[\"bootMode\"] = string(mode)",
			New:     "_ = mode",
			Package: metal3,
			Run:     "TestAnAppliedHostBootsAsItsInspectionDid",
		},
		{
			Name:    "a checksum without a type is taken for MD5",
			File:    "daemon/metal/metal3/applied.go",
			Old:     "if image.Checksum != \"\" && image.ChecksumType == \"\" {",
			New:     "if image.Checksum == \"\" && image.ChecksumType == \"\" {",
			Package: metal3,
		},
		{
			Name:    "user data that does not exist is not waited for",
			File:    "daemon/metal/provisioning/applied.go",
			Old:     "time.Since(a.Host.CreationTimestamp.Time) < metal3.AwaitSecrets",
			New:     "time.Since(a.Host.CreationTimestamp.Time) < 0",
			Package: "./daemon/metal/provisioning",
		},
		{
			Name:    "an older object of the same length is taken for the upload",
			File:    "daemon/uploads/blobs/finish.go",
			Old:     " && o.Meta[metaSerial] == u.Serial",
			New:     "",
			Package: "./daemon/uploads/blobs",
		},
		{
			Name:    "a Service of a store that is gone stays",
			File:    "daemon/uploads/serving/services.go",
			Old:     "c.Delete(ctx, o)",
			New:     "error(nil)",
			Package: "./daemon/uploads/serving",
		},
	}
}
