package firmware

import "path"

// Reasons why a file is not carried. What Debian leaves out, and why, is in debian/copyright of its package
// firmware-nonfree (Files-Excluded).
const (
	noSource  = "Debian does not distribute it: it is said to be under the GPL, and no source is published"
	unclear   = "Debian does not distribute it: its licence is unknown"
	onFlash   = "an update of what the card's own flash memory has, which it starts with otherwise (1.2 MiB)"
	unadopted = "neither Debian nor linux-firmware, which it comes from, has it; its maker has"
)

// lacking are the names of files that are not carried, each with the device and the reason. A name may be a glob.
var lacking = []struct{ name, device, reason string }{
	{"acenic/tg?.bin", "Alteon AceNIC, 1998", unclear},
	{"adaptec/starfire_?x.bin", "Adaptec Starfire, 1999", noSource},
	{"aic94xx-seq.fw", "Adaptec AIC-9410 SAS, 2006", unadopted},
	{"idt82p33xxx.bin", "Renesas 82P33 clocks: a configuration for each board", unadopted},
	{"ositech/Xilinx7OD.bin", "PC cards", noSource},
	{"pca200e_ecd.bin2", "FORE ATM, 1996", unadopted},
	{"phanfw.bin", "QLogic and NetXen 10 Gbit/s, 2008 to 2012 (netxen_nic, qlcnic)", onFlash},
	{"renesas_usb_fw.mem", "USB 3 controllers µPD72020x without a flash memory", unadopted},
	{"softing-4.6/*.bin", "CAN on PC cards", unadopted},
	{"solos-*.bin", "ADSL cards: updates of what their flash memory has", unadopted},
	{"sun/cassini.bin", "Sun Cassini, 2002", unclear},
	{"wd719x-*.bin", "Western Digital SCSI, 1993", unadopted},
}

// unnamed are files that a driver asks for and does not name in its module, by module.
var unnamed = map[string][]string{
	// How the card divides its queues among its functions (cxgb4_main.c, FW5_CFNAME): without, it takes what its
	// flash memory says, which need not fit the firmware.
	"cxgb4": {"cxgb4/t4-config.txt", "cxgb4/t5-config.txt", "cxgb4/t6-config.txt"},
}

// links are names that drivers ask for, and where Debian's package has the file instead.
var links = map[string]string{
	"netronome/nic_AMDA0058-0011_2x40.nffw":      "netronome/nic/nic_AMDA0058-0011_2x40.nffw",
	"netronome/nic_AMDA0058-0012_2x40.nffw":      "netronome/nic/nic_AMDA0058-0012_2x40.nffw",
	"netronome/nic_AMDA0099-0001_1x10_1x25.nffw": "netronome/nic/nic_AMDA0099-0001_1x10_1x25.nffw",
}

// reasonFor returns why a file that a driver names is not carried; empty if nothing is known.
func reasonFor(name string) string {
	for _, l := range lacking {
		if ok, err := path.Match(l.name, name); name == l.name || err == nil && ok {
			return l.reason
		}
	}
	return ""
}
