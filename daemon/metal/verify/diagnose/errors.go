package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/pxe/boottrace"
)

// failure is a situation of an error that the operator or Ironic names. The words are those of Ironic 29 and its
// agent.
type failure struct {
	name     string
	meaning  string
	sentence string // what became of the node; the error follows
	next     string
	words    []string
}

func (f failure) rule() rule {
	return rule{
		name:     f.name,
		meaning:  f.meaning,
		fails:    true,
		percent:  30,
		since:    hostSince,
		matches:  func(v View) bool { return mentions(v, f.words...) },
		sentence: func(v View) string { return f.sentence + ": " + errorDetail(v) },
		next:     fixedNext(f.next),
	}
}

// errorDetail is the error with what the ramdisk's log adds to it.
func errorDetail(v View) string {
	s := firstSentence(hostError(v))
	if v.Log != "" && !strings.Contains(s, v.Log) {
		s += " (ramdisk: " + firstSentence(v.Log) + ")"
	}
	return s
}

// isInterrupted tells whether an error is that of work which Ironic, starting, finds begun by its last life.
func isInterrupted(text string) bool { return strings.Contains(text, "can't be resumed by conductor") }

// isTimeout tells whether the error is a timeout of a ramdisk.
func isTimeout(v View) bool { return mentions(v, "timeout reached while", "waiting for callback") }

// isCallbackTimeout tells whether a timeout of a ramdisk is what went wrong: how far it came on the wire says more
// than the timeout. The operator keeps the error while it tries again; of a machine that is heard at this
// moment it says nothing.
func isCallbackTimeout(v View) bool { return isTimeout(v) && !isActive(v) }

// isActive tells whether a machine that is to boot is heard on the wire, or was so shortly before that the
// next step may follow.
func isActive(v View) bool {
	patience := step
	if slices.Contains([]boottrace.Step{boottrace.StepDisc, boottrace.StepRamdisk, stepSystem}, furthestMark(v).Step) {
		patience = ramdisk
	}
	return isBooting(v) && currentBoot(v) != nil && v.Now.Sub(v.BootTrace.Last.Time) < patience
}

// errorRules are errors of work that was under way.
var errorRules = []rule{
	{
		name:    "interrupted",
		meaning: "Ironic was at work when the appliance lost its power or Ironic was started again",
		percent: 12,
		since:   hostSince,
		matches: func(v View) bool { return v.Host != nil && isInterrupted(v.Host.Error) },
		sentence: func(v View) string {
			return fmt.Sprintf(
				"was %s when the appliance was started again, which ended that; it is begun again in some minutes",
				stateName(v),
			)
		},
		next: fixedNext("nothing"),
	},
	failure{
		name:     "bmc-refusing",
		meaning:  "the BMC took the password in pre-flight and refuses it now",
		sentence: "cannot go on, its BMC refuses user or password",
		next:     "correct bmc.username or bmc.password in site.yaml, then run firstlightd reload",
		words: []string{
			"returned code 401",
			"returned code 403",
			"credentials are not valid",
			"invalid credentials",
		},
	}.rule(),
	{
		name:    "bmc-gone",
		meaning: "its BMC stopped answering while it is worked on; Ironic asks it again every few minutes",
		fails:   true,
		percent: 30,
		matches: func(v View) bool {
			return v.Ironic != nil && strings.Contains(
				v.Ironic.Maintenance, "sync_power_state",
			) || mentions(v, "redfish connection failed")
		},
		sentence: fixedSentence("cannot go on: its BMC does not answer Ironic any more, or refuses it"),
		next:     fixedNext("check the BMC's cable, address, user and password; it continues automatically some minutes after the BMC answers"),
	},
	{
		name:     "maintenance",
		meaning:  "Ironic was told to keep its hands off",
		fails:    true,
		percent:  30,
		matches:  func(v View) bool { return v.Ironic != nil && v.Ironic.Maintenance != "" },
		sentence: func(v View) string { return "is in maintenance in Ironic: " + v.Ironic.Maintenance },
		next: func(v View) string {
			return fmt.Sprintf("when it is repaired, run: baremetal node maintenance unset metal3~%s", v.Name)
		},
	},
	discRefused,
	failure{
		name:     "disk-changed",
		meaning:  "right before the image was written, the disk was not what inspection had seen",
		sentence: "was not written to",
		next:     "check which disk it is; firstlightd why says how to give up what is on it; or put the right disk back, it is retried automatically",
		words:    []string{"refused by the appliance:"},
	}.rule(),
	failure{
		name:     "checksum",
		meaning:  "the image's digest is another one",
		sentence: "was not installed, its image is damaged or another one",
		next:     "correct os.sha256 in site.yaml, or put the right image there",
		words:    []string{"failed to verify against checksum", "verifying image checksum", "checksum mismatch"},
	}.rule(),
	failure{
		name:     "disk-too-small",
		meaning:  "the image does not fit on the disk",
		sentence: "was not installed, its disk is too small",
		next:     "give it a larger disk, or name another one in rootDevice",
		words: []string{
			"no space left",
			"is too small",
			"too big",
			"larger than the",
			"not enough space",
			"requires a minimum",
		},
	}.rule(),
	failure{
		name:     "no-disk",
		meaning:  "the agent finds no disk that the hints name",
		sentence: "was not installed, it has no such disk",
		next:     "correct rootDevice in site.yaml; kubectl -n metal3 get bmh -o yaml shows which disks it has",
		words: []string{
			"no suitable device",
			"unable to find root device",
			"root device hints",
			"no disks",
		},
	}.rule(),
	failure{
		name:     "disk-broken",
		meaning:  "a write to the disk failed (the agent calls it a download that failed)",
		sentence: "was not installed, its disk cannot be written",
		next:     "replace that disk, or name another one in rootDevice; the kernel's log from the ramdisk is below /var/lib/ironic/log/deploy",
		words:    []string{"unable to write image to device"},
	}.rule(),
	{
		name:    "image-unreachable",
		meaning: "the agent cannot download the image",
		fails:   true,
		percent: 30,
		since:   hostSince,
		matches: func(v View) bool {
			writing := mentions(v, "write_image failed", "execute_deploy_step")
			return mentions(v, "error downloading image", "download of image", "image download") ||
				writing && mentions(v, "cannot be reached:", "read timed out", "connection aborted")
		},
		sentence: func(v View) string { return "could not load its image: " + errorDetail(v) },
		next:     fixedNext("check whether the image's address answers from the provisioning network"),
	},
	failure{
		name:     "boot-loader",
		meaning:  "the image was written and cannot be made to boot",
		sentence: "was written, but cannot be made to boot",
		next:     "check whether the image boots by bootMode (UEFI needs an EFI system partition)",
		words:    []string{"bootloader", "efibootmgr", "efi system partition"},
	}.rule(),
	{
		name:    "agent-refused",
		meaning: "what called Ironic in its name was refused: it had not the token of this boot, or said more than its own",
		fails:   true,
		percent: 25,
		since:   func(v View) time.Time { return v.Refusal.Time },
		matches: func(v View) bool {
			return isBooting(v) && v.Refusal.Sentence != "" && v.Refusal.Time.After(startedAt(v))
		},
		sentence: func(v View) string { return "is not listened to: " + v.Refusal.Sentence },
		next:     fixedNext("nothing, if it boots again; else look for another machine with its MAC or its address on the provisioning network"),
	},
	discUnread,
	discSilent,
	{
		name:    "no-callback",
		meaning: "its ramdisk was sent and its agent never called",
		fails:   true,
		percent: 25,
		since:   hostSince,
		matches: func(v View) bool {
			return isCallbackTimeout(v) && slices.Contains(
				way[slices.Index(way, boottrace.StepRamdisk):], furthestMark(v).Step,
			) || stuckRamdisk(v)
		},
		sentence: func(v View) string {
			if furthestMark(v).Step == stepSystem {
				return "loaded its ramdisk and got an address, but the agent in it never called"
			}
			return "loaded its ramdisk, but the agent in it never called"
		},
		next: fixedNext("check its console: does the ramdisk find its NIC and get an address? A NIC without a driver in Debian's kernel shows there"),
	},
	{
		name:     "boot-timeout",
		meaning:  "Ironic waited without an answer for its agent, and it had not come so far on the wire",
		fails:    true,
		percent:  15,
		since:    hostSince,
		matches:  isCallbackTimeout,
		sentence: func(v View) string { return "did not boot in time: " + bootProgressText(v) },
		next:     fixedNext("check its console, its boot order (network first, IPv4) and the cable of its boot NIC; it is retried automatically"),
	},
	{
		name:    "power-refused",
		meaning: "its BMC does not do what it is told",
		fails:   true,
		percent: 12,
		since:   hostSince,
		matches: func(v View) bool {
			return hostError(v) != "" && isErrorType(
				v, metal3api.PowerManagementError,
			) || mentions(v, "failed to set node power state")
		},
		sentence: func(v View) string { return "cannot be switched on or off: " + errorDetail(v) },
		next:     fixedNext("check the BMC: restart it, or press the server's power button"),
	},
	{
		name:    "registration",
		meaning: "the BMC answered the pre-flight, and Ironic cannot speak to it now",
		fails:   true,
		percent: 5,
		since:   hostSince,
		matches: func(v View) bool {
			return hostError(v) != "" && isErrorType(
				v, metal3api.RegistrationError, metal3api.ProvisionedRegistrationError,
			)
		},
		sentence: func(v View) string { return "cannot be registered: " + errorDetail(v) },
		next:     fixedNext("check the BMC's cable, address and password; it is retried automatically"),
	},
	{
		name:     "error",
		meaning:  "any other error of the operator's or Ironic's",
		fails:    true,
		percent:  20,
		since:    hostSince,
		matches:  func(v View) bool { return hostError(v) != "" && !isTimeout(v) },
		sentence: func(v View) string { return fmt.Sprintf("failed while %s: %s", stateName(v), errorDetail(v)) },
		next:     fixedNext("it is retried automatically, more and more rarely; firstlightd bundle collects what is needed to find out"),
	},
}

func isErrorType(v View, types ...metal3api.ErrorType) bool {
	return slices.Contains(types, metal3api.ErrorType(v.Host.ErrorType))
}
