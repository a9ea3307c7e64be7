package nodeupdate

import (
	"fmt"
	"slices"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Reasons of a Hold.
const (
	ReasonPaused        = "Paused"
	ReasonOutsideWindow = "OutsideWindow"
	ReasonChanging      = "ClusterChanging"
)

// Opens is when a window is open next: now itself while it is open. The error says what is wrong with the window.
func Opens(w v1alpha1.Window, now time.Time) (time.Time, error) {
	clock, err := time.Parse("15:04", w.Start)
	if err != nil {
		return time.Time{}, fmt.Errorf("window.start %q is no time of day; write one such as 22:00", w.Start)
	}
	if w.Hours < 1 || w.Hours > 24 {
		return time.Time{}, fmt.Errorf("window.hours is %d; write a number from 1 to 24", w.Hours)
	}

	now = now.UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, time.UTC)
	for ahead := -1; ahead <= 7; ahead++ { // that of yesterday may still be open
		begins := day.AddDate(0, 0, ahead)
		if len(w.Days) > 0 && !slices.Contains(w.Days, begins.Format("Mon")) {
			continue
		}
		switch ends := begins.Add(time.Duration(w.Hours) * time.Hour); {
		case now.Before(begins):
			return begins, nil
		case now.Before(ends):
			return now, nil
		}
	}
	return time.Time{}, fmt.Errorf("window.days %v names no day; write Mon, Tue, Wed, Thu, Fri, Sat or Sun", w.Days)
}
