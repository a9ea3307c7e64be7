package mutants

// Network are faults of DHCP, TFTP and leases.
func Network() []Mutant {
	return []Mutant{
		{
			Name:    "what unknown machines were offered keeps nodes waiting",
			File:    "pxe/lease/table.go",
			Old:     "if a, ok := t.endOffer(s, q, now); ok {",
			New:     "if a, ok := t.endOffer(s, q, now); ok && false {",
			Package: lease,
			Run:     "TestAnOfferToAnUnknownMachineKeepsNoKnownOneWaiting",
		},
		{
			Name:    "a lease is acknowledged before it is on the disk",
			File:    "pxe/lease/journal.go",
			Old:     "err = j.file.syncData()",
			New:     "err = nil",
			Package: lease,
		},
		{
			Name:    "a compacted journal is renamed before it is on the disk",
			File:    "pxe/lease/disk.go",
			Old:     "err = f.Sync()",
			New:     "err = nil",
			Package: lease,
		},
		{
			Name:    "leases are forgotten as soon as they end",
			File:    "pxe/lease/journal.go",
			Old:     "forgetAfter = 30 * 24 * time.Hour",
			New:     "forgetAfter = 0 * time.Hour",
			Package: lease,
		},
		{
			Name:    "the old address of a machine is not released on the disk",
			File:    "pxe/lease/table.go",
			Old:     "changed = append(changed, old)",
			New:     "_ = old",
			Package: lease,
		},
		{
			Name:    "a machine is told of a lease that could not be stored",
			File:    "pxe/dhcp/server.go",
			Old:     "Reason: ReasonStorage, Text: stored.Error()})\n\t\treturn\n",
			New:     "Reason: ReasonStorage, Text: stored.Error()})\n",
			Package: dhcp,
		},
		{
			Name:    "packets are answered while other servers are still searched for",
			File:    "pxe/dhcp/server.go",
			Old:     "if phase != PhaseServing && phase != PhaseProxy {",
			New:     "if phase != PhaseServing && phase != PhaseProxy && phase != PhaseProbing {",
			Package: dhcp,
		},
		{
			Name:    "classless routes lack the default route (RFC 3442)",
			File:    "pxe/dhcp/reply.go",
			Old:     "if s.Router.IsValid() && !hasDefault {",
			New:     "if s.Router.IsValid() && hasDefault {",
			Package: dhcp,
		},
		{
			Name:    "an ended lease names a machine",
			File:    "pxe/dhcp/machines.go",
			Old:     "!l.IsActive(s.journal.Now()) {\n\t\treturn pxe.Machine{}, false",
			New:     "l.IsActive(0) && false {\n\t\treturn pxe.Machine{}, false",
			Package: dhcp,
		},
		{
			Name:    "a silent client is sent its block at equal intervals",
			File:    "pxe/tftp/transfer.go",
			Old:     "t.wait = min(2*t.wait, maxWait)",
			New:     "t.wait = min(t.wait, maxWait)",
			Package: tftp,
		},
		{
			Name:    "blocks need IP fragments",
			File:    "pxe/tftp/transfer.go",
			Old:     "t.block = min(t.request.block, t.server.largest)",
			New:     "t.block = t.request.block",
			Package: tftp,
			Run:     "TestFault14NoFragmentsOnEthernet",
			Kinds:   "ns",
		},
	}
}
