package kube

import (
	"embed"
	"os"
	"path"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
)

//go:embed policies/*.yaml
var policies embed.FS

// Where the API server has its policies, and its audit log, which is on DATA.
const (
	policyDir = "/etc/kubernetes/policies"
	auditDir  = stick.DataDir + "/audit"
)

// Argument is one of a program's, without the hyphens before its name.
type Argument struct{ Name, Value string }

// APIServerPolicies are the files by which the API server decides whom it answers without credentials, which pods it
// admits and what it writes down, by their names in dir, and the arguments that name them. People of issuer, which may be
// nil, have credentials by it. The log, in audit, has four files of 8 MiB at most, and none of the three that are complete
// is older than 90 days.
func APIServerPolicies(dir, audit string, issuer *site.OIDC) (files map[string][]byte, args []Argument, err error) {
	files = map[string][]byte{}
	all, err := policies.ReadDir("policies")
	if err != nil {
		return nil, nil, err
	}

	for _, f := range all {
		if files[f.Name()], err = policies.ReadFile("policies/" + f.Name()); err != nil {
			return nil, nil, err
		}
	}

	if files["authentication.yaml"], err = authentication(files["authentication.yaml"], issuer); err != nil {
		return nil, nil, err
	}

	return files, []Argument{
		{"admission-control-config-file", path.Join(dir, "admission.yaml")},
		{"authentication-config", path.Join(dir, "authentication.yaml")},
		{"audit-policy-file", path.Join(dir, "audit.yaml")},
		{"audit-log-path", path.Join(audit, "audit.log")},
		{"audit-log-maxsize", "8"},
		{"audit-log-maxbackup", "3"},
		{"audit-log-maxage", "90"},
		// No request waits for the stick to have the line.
		{"audit-log-mode", "batch"},
	}, nil
}

// policyFiles are those files where the API server's pod has them.
func policyFiles(c Config) ([]file, []Argument, error) {
	texts, args, err := APIServerPolicies(policyDir, auditDir, c.OIDC)
	var files []file
	for _, name := range []string{"admission.yaml", "audit.yaml", "authentication.yaml"} {
		files = append(files, file{path.Join(policyDir, name), os.FileMode(0o600), texts[name]})
	}
	return files, args, err
}
