package discovery

import (
	"fmt"
	"time"
)

// Text is why a machine is not a node, and what to do, for people; "" for one that is.
func (f Finding) Text() (text, fix string) {
	const name = "name it in nodes of site.yaml"
	m := f.Machine
	switch f.Reason {
	case ReasonBMCNone:
		return "it names no BMC", "enable its BMC, or " + name
	case ReasonBMCOutside:
		return fmt.Sprintf("its BMC %s is in no network of discover.bmcs", m.BMC),
			"correct discover.bmcs in site.yaml, or " + name
	case ReasonBMCKnown:
		return fmt.Sprintf("its BMC %s is that of %s", m.BMC, f.Other), "check which of the two has that BMC, and " + name
	case ReasonBMCShared:
		return fmt.Sprintf("its BMC %s is named by the machine with MAC %s, too", m.BMC, f.Other),
			"check which of the two has that BMC, and " + name
	case ReasonSerialNone:
		return fmt.Sprintf("its serial number %q makes no name", m.Serial), "use {number} in discover.names, or " + name
	case ReasonSerialShared:
		return fmt.Sprintf("its serial number %s is that of %s, too", m.Serial, f.Other),
			"use {number} in discover.names, or " + name
	case ReasonNameTaken:
		return fmt.Sprintf("the name %s is taken", f.Other), name
	case ReasonFull:
		return "there are as many nodes as discover.count allows", "raise discover.count in site.yaml"
	case ReasonRefused:
		return fmt.Sprintf("its BMC %s refuses every login of the site", m.BMC),
			"add its login to discover.credentials in site.yaml, or set one of them on the BMC and " + name
	case ReasonTrying:
		return fmt.Sprintf("its BMC %s is asked now", m.BMC), ""
	case ReasonWaiting:
		return fmt.Sprintf("its BMC %s is asked again at %s: %s", m.BMC, clock(f.Due), f.Other), name + ", which is tried at once"
	case ReasonOff:
		return fmt.Sprintf("it runs, and the BMC %s says that its server is off: it is another server's; it is asked again at %s",
			m.BMC, clock(f.Due)), "check the cable and address of its BMC"
	case ReasonApproval:
		return fmt.Sprintf("its BMC %s takes the login of %q; it awaits approval", m.BMC, m.Username),
			"run: firstlightd approve " + string(m.Name)
	}
	return "", ""
}

func clock(t time.Time) string { return t.UTC().Format("15:04 UTC") }
