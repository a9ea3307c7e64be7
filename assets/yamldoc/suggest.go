package yamldoc

import (
	"slices"
	"strings"
)

// otherNames are the keys for what other tools call so, without hyphens and underscores, in the order in which they
// are looked for.
var otherNames = map[string][]string{
	"mac":            {"mac", "macs", "bootMAC"},
	"macaddress":     {"mac", "macs", "bootMAC"},
	"macaddresses":   {"macs"},
	"hwaddr":         {"mac", "macs"},
	"bootmacaddress": {"bootMAC"},
	"ip":             {"address", "links"},
	"ips":            {"address", "links"},
	"ipaddress":      {"address", "links"},
	"ipaddr":         {"address", "links"},
	"subnet":         {"cidr"},
	"network":        {"cidr"},
	"router":         {"gateway"},
	"gw":             {"gateway"},
	"nameserver":     {"dns"},
	"nameservers":    {"dns"},
	"dnsnameservers": {"dns"},
	"hostname":       {"hostname", "name"},
	"user":           {"username"},
	"passwd":         {"password"},
	"pass":           {"password"},
	"ipmi":           {"bmc"},
	"nic":            {"interface", "mac"},
	"disk":           {"rootDevice"},
}

// Suggest says what may be meant by an unknown key: the nearest known one, or all of them.
func Suggest(key string, known []string) string {
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(key))
	for _, k := range otherNames[plain] {
		if slices.Contains(known, k) {
			return "did you mean " + k + "?"
		}
	}

	best, least := "", 1<<30
	for _, k := range known {
		d := editDistance(strings.ToLower(key), strings.ToLower(k))
		if d < least {
			best, least = k, d
		}
	}

	if len(key) < 64 && least <= max(len(best)/3, 1) {
		return "did you mean " + best + "?"
	}

	for _, k := range known {
		if len(key) > 2 && (containsFold(k, key) || containsFold(key, k)) {
			return "did you mean " + k + "?"
		}
	}

	return "known here: " + strings.Join(known, ", ")
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// editDistance counts the insertions, deletions and replacements of bytes between a and b.
func editDistance(a, b string) int {
	if len(a) > 64 {
		a = a[:64]
	}

	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}

			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}

	return row[len(b)]
}
