package mutants

// Appliance are faults of the machine itself, of its stick and of what is shared.
func Appliance() []Mutant {
	return []Mutant{
		{
			Name:    "web tokens are not redacted",
			File:    "daemon/appliance/supportbundle/suspicion.go",
			Old:     "line = webToken.ReplaceAll(line, []byte(hidden))",
			New:     "_ = webToken",
			Package: bundle,
		},
		{
			Name:    "the SSH host keys of the appliance are not known as secrets",
			File:    "daemon/appliance/supportbundle/secrets.go",
			Old:     "\"/etc/ssh\", ",
			New:     "",
			Package: bundle,
		},
		{
			Name: "secrets in base64url are not redacted",
			File: "daemon/appliance/supportbundle/forms.go",
			Old: "\t\tbase64.URLEncoding.EncodeToString([]byte(s)),\n" +
				"\t\tbase64.RawURLEncoding.EncodeToString([]byte(s)),\n",
			New:     "",
			Package: bundle,
		},
		{
			Name:    "a secret key is not announced by its name",
			File:    "daemon/appliance/supportbundle/suspicion.go",
			Old:     "secret[_-]?(?:access[_-]?)?key|",
			New:     "",
			Package: bundle,
		},
		{
			Name:    "a private key is not announced by its name",
			File:    "daemon/appliance/supportbundle/suspicion.go",
			Old:     "(?:api|access|private|",
			New:     "(?:api|access|",
			Package: bundle,
		},
		{
			Name:    "a token is not announced by its name",
			File:    "daemon/appliance/supportbundle/suspicion.go",
			Old:     "`token|authorization|",
			New:     "`authorization|",
			Package: bundle,
		},
		{
			Name:    "a certificate of another authority is served",
			File:    "daemon/appliance/ca/ca.go",
			Old:     "cert.CheckSignatureFrom(a.cert) != nil || ",
			New:     "",
			Package: "./daemon/appliance/ca",
		},
		{
			Name:    "a stage is believed after it was done",
			File:    "daemon/engine/bringup/runner.go",
			Old:     "\t\tif err == nil {\n\t\t\terr = r.askDone(ctx, i)\n\t\t}\n",
			New:     "",
			Package: bringup,
		},
		{
			Name:    "stages above one that fell are not asked again",
			File:    "daemon/engine/bringup/runner.go",
			Old:     "r.tracks[j].lastHeld = time.Time{}",
			New:     "_ = j",
			Package: bringup,
		},
		{
			Name:    "a file system with errors left counts as repaired",
			File:    "daemon/appliance/storage/disk.go",
			Old:     "run(ctx, 3, \"e2fsck\", \"-f\", \"-y\", device)",
			New:     "run(ctx, 7, \"e2fsck\", \"-f\", \"-y\", device)",
			Package: "./daemon/appliance/storage",
		},
		{
			Name:    "the initramfs mounts DATA to write",
			File:    "daemon/appliance/initrd/root.go",
			Old:     "const dataFlags = unix.MS_RDONLY | ",
			New:     "const dataFlags = ",
			Package: "./daemon/appliance/initrd",
		},
		{
			Name:    "systemd is not read before it gets the machine",
			File:    "daemon/appliance/initrd/root.go",
			Old:     "io.Copy(io.Discard, f)",
			New:     "io.CopyN(io.Discard, f, 0)",
			Package: "./daemon/appliance/initrd",
		},
		{
			Name:    "the address is given up when its server is silent",
			File:    "daemon/appliance/host/lease.go",
			Old:     " || !now.Before(l.rebindTime())",
			New:     " || !now.Before(time.Time{})",
			Package: "./daemon/appliance/host",
		},
		{
			Name:    "a stick is not synced while it is written",
			File:    "image/flash/flash.go",
			Old:     "if since >= syncEvery || done == total {",
			New:     "if since < 0 {",
			Package: "./image/flash",
		},
		{
			Name:    "a stick may be pulled before its table is on it",
			File:    "image/flash/flash.go",
			Old:     "\t\treturn err\n\t}\n\treturn m.Sync()\n",
			New:     "\t\treturn err\n\t}\n\treturn nil\n",
			Package: "./image/flash",
		},
		{
			Name:    "an old table at the end of a stick stays",
			File:    "image/flash/flash.go",
			Old:     ", {\"the old table\", make([]byte, edge), p.size - edge}}",
			New:     "}",
			Package: "./image/flash",
		},
		{
			Name:    "a fetched artifact of another digest is built in",
			File:    "image/artifacts.go",
			Old:     "if a.SHA256 != \"\" && a.SHA256 != digest {",
			New:     "if a.SHA256 != \"\" && digest == \"\" {",
			Package: "./image",
		},
		{
			Name:    "a file is renamed before it is on the disk",
			File:    "assets/atomicfile/atomicfile.go",
			Old:     "err = sync(f)",
			New:     "err = nil",
			Package: "./assets/atomicfile",
		},
	}
}
