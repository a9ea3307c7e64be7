package diagnose

import (
	"fmt"
	"time"

	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// ownerRules are hosts with which the appliance does something because their owner asked.
var ownerRules = []rule{
	{
		name:     "replacing",
		meaning:  "its owner has said that another server takes its place",
		matches:  func(v View) bool { return v.Blocked.Reason == metal3.ReasonReplacing },
		sentence: fixedSentence(metal3.Replacement{}.Sentence()),
		since:    hostSince,
	},
	{
		name:     "erasing",
		meaning:  "its owner has disks of it erased",
		matches:  func(v View) bool { return v.Erasure != nil && v.Erasure.IsOpen() },
		sentence: func(v View) string { return v.Erasure.Sentence() },
		since:    func(v View) time.Time { return v.Erasure.Asked },
	},
	{
		name:    "erase-lost",
		meaning: "it was paused to have disks of it erased, and the record of that was lost",
		fails:   true,
		matches: func(v View) bool {
			return v.Erasure != nil && v.Erasure.Lost && v.Host != nil && v.Erasure.Host == v.Host.UID &&
				hostState(v, "available", "ready")
		},
		sentence: func(v View) string { return v.Erasure.Sentence() },
		next: func(v View) string {
			return fmt.Sprintf("ask again which disks of it are to be erased: firstlightd erase %s", v.Name)
		},
		since: func(v View) time.Time { return v.Erasure.Ended },
	},
	{
		name:    "erase-failed",
		meaning: "disks of it were to be erased, and are not",
		fails:   true,
		matches: func(v View) bool {
			return v.Erasure != nil && v.Erasure.HasFailed() && v.Host != nil && v.Erasure.Host == v.Host.UID &&
				hostState(v, "available", "ready")
		},
		sentence: func(v View) string { return v.Erasure.Sentence() },
		next: func(v View) string {
			return fmt.Sprintf("fix what is named; to try again, run: firstlightd erase %s", v.Name)
		},
		since: func(v View) time.Time { return v.Erasure.Ended },
	},
}
