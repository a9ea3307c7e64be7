package metal3

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/site"
)

// keyData is the cloud-config that lets the appliance in as root and gives the host the SSH host key by which it is
// known. merge_how (cloud-init, "Merging user-data sections") adds to lists, and leaves every other value that the
// host's own user data has.
func keyData(name site.Name, a Appliance) (string, error) {
	host, err := a.HostKey(name)
	if err != nil {
		return "", err
	}

	out, err := yaml.Marshal(map[string]any{
		"merge_how": "list(append)+dict(no_replace,recurse_list)+str()",
		"ssh_keys":  map[string]string{"ed25519_private": host.Private, "ed25519_public": host.Public},
		"runcmd": []any{
			[]string{"install", "-d", "-m", "700", "/root/.ssh"},
			[]string{"sh", "-c", `umask 077; grep -qxF "$0" /root/.ssh/authorized_keys 2>/dev/null ||
printf '%s\n' "$0" >>/root/.ssh/authorized_keys`, a.Key},
		},
	})
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}

	return "#cloud-config\n" + string(out), nil
}

// mergeBoundary separates the parts. Parts are base64, which has no such line.
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
		"--" + mergeBoundary + "\n" + encodePart(keys) + "\n" +
		"--" + mergeBoundary + "--\n", true
}

// isMIME reports whether cloud-init takes user data for a message: by a header near its begin.
func isMIME(own string) bool {
	return strings.Contains(strings.ToLower(own[:min(len(own), 4096)]), "mime-version:") &&
		!strings.Contains(own, mergeBoundary)
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
