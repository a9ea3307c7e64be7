package simulator

import "fmt"

// Understood is what the firmware makes of a script.
func Understood(text string) string {
	switch s := parse(text); {
	case s.wait:
		return "wait"
	case s.kernel == "":
		return "disk"
	default:
		return fmt.Sprint(s.kernel, " ", s.initrds, " ", s.args["ipa-api-url"])
	}
}
