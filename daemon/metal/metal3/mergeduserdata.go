package metal3

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/hostkey"
)

// keyData is the cloud-config that lets the appliance in as root and has the place of the SSH host key that the host's
// own ramdisk makes (package hostkey). merge_how (cloud-init, "Merging user-data sections") adds to lists, and leaves every
// other value that the host's own user data has. The commands stand before the host's own, which may take long or fail:
// the appliance can look there meanwhile.
func keyData(a Appliance) (string, error) {
	out, err := yaml.Marshal(map[string]any{
		"merge_how": "list(prepend)+dict(no_replace,recurse_list)+str()",
		"ssh_keys":  map[string]string{"ed25519_private": hostkey.Place()},
		"runcmd": []any{
			[]string{"install", "-d", "-m", "700", "/root/.ssh"},
			[]string{"sh", "-c", `umask 077; grep -qxF "$0" /root/.ssh/authorized_keys 2>/dev/null ||
printf '%s\n' "$0" >>/root/.ssh/authorized_keys`, a.Key},
		},
	})
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}

	return "#cloud-config\n" + hostkey.Quote(string(out)), nil
}

// mergeBoundary separates the parts. None of them has such a line: the host's own is base64.
const mergeBoundary = "==firstlight-7c0b7f5a9c1d4d53=="

// userDataForms are what user data begins with that cloud-init reads part by part (cloud-init, "User-data formats").
var userDataForms = []string{
	"#cloud-config", "#!", "#include", "#cloud-boothook", "#part-handler", "## template: jinja",
}

// mergeUserData puts keys, a cloud-config, behind a host's own user data as another part of one MIME message
// (cloud-init, "MIME multi-part archive"). false: own is in no form of cloud-init's, or compressed, and stays as it is.
func mergeUserData(own, keys string) (merged string, ok bool) {
	if strings.TrimSpace(own) == "" {
		return keys, true
	}

	first := ""
	switch begins := func(form string) bool { return strings.HasPrefix(own, form) }; {
	case slices.ContainsFunc(userDataForms, begins):
		first = encodePart(own)
	case isMIME(own):
		first = own // a message within the message
	default:
		return "", false
	}

	return "Content-Type: multipart/mixed; boundary=\"" + mergeBoundary + "\"\nMIME-Version: 1.0\n\n" +
		"--" + mergeBoundary + "\n" + first + "\n" +
		"--" + mergeBoundary + "\n" + plainPart(keys) + "\n" +
		"--" + mergeBoundary + "--\n", true
}

// isMIME reports whether cloud-init takes user data for a message: by a header near its begin.
func isMIME(own string) bool {
	return strings.Contains(strings.ToLower(own[:min(len(own), 4096)]), "mime-version:") &&
		!strings.Contains(own, mergeBoundary)
}

// plainPart is a part as it is, for the ramdisk to find the place of the host key in it.
func plainPart(text string) string {
	return "Content-Type: text/plain; charset=\"us-ascii\"\nContent-Transfer-Encoding: 7bit\n\n" + text
}

// encodePart is one part. Of text/plain cloud-init finds the form by what it begins with.
func encodePart(text string) string {
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	var lines strings.Builder
	for len(encoded) > 76 { // RFC 2045, section 6.8
		lines.WriteString(encoded[:76] + "\n")
		encoded = encoded[76:]
	}

	return "Content-Type: text/plain; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n\n" +
		lines.String() + encoded
}
