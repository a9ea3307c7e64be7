package mutants

// Updates are faults by which a power cut in an update leaves something else than a whole version, or by which a version
// is tried that the machine does not start.
func Updates() []Mutant {
	const (
		update = "./daemon/appliance/stickupdate"
		cuts   = "TestThirtyPowerCuts"
	)
	return []Mutant{
		{
			Name:    "a slot is tried whose bytes are not on the medium",
			File:    "daemon/appliance/stickupdate/update.go",
			Old:     "			if err := to.Sync(); err != nil {\n				return err\n			}\n",
			New:     "",
			Package: update,
			Run:     cuts,
		},
		{
			Name:    "a slot is tried while it is written",
			File:    "daemon/appliance/stickupdate/update.go",
			Old:     "SetEnvironment(stick.Environment{Slot: running}); err",
			New:     "SetEnvironment(stick.Environment{Slot: running, Try: into}); err",
			Package: update,
			Run:     cuts,
		},
		{
			Name:    "GRUB's memory is not on the medium",
			File:    "daemon/appliance/stickupdate/stick.go",
			Old:     "errors.Join(s.ESP.Sync(), s.ESP.Drop())",
			New:     "s.ESP.Drop()",
			Package: update,
			Run:     cuts,
		},
		{
			Name:    "a signed stick takes what another owner signed",
			File:    "daemon/appliance/stickupdate/starts.go",
			Old:     "err = secureboot.CheckSlot(volume.ReadFile, owners)",
			New:     "_, err = volume.ReadFile(stick.SlotConfigName + secureboot.Suffix)",
			Package: update,
			Run:     "TestASignedStickIsUpdatedToWhatItsOwnerSigned",
		},
		{
			Name:    "GRUB's memory that was written in part is not read",
			File:    "assets/stick/environment.go",
			Old:     " || !strings.HasSuffix(line, \"\\n\")",
			New:     "",
			Package: "./assets/stick",
			Run:     "TestATornEnvironmentIsTheOneBeforeOrTheOneAfter",
		},
		{
			Name:    "a root on trial is the one before",
			File:    "image/install/update.go",
			Old:     "	case isTrial && hasPrevious:\n		return startGoBack\n",
			New:     "",
			Package: "./image/install",
			Run:     "TestACutBetweenTwoNamesLeavesAWholeRoot",
		},
	}
}
