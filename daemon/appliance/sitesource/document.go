package sitesource

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// SiteName is the site document in a source's folder.
const SiteName = "site.yaml"

// draft is a site document of a source, with the secrets that the appliance has.
type draft struct {
	text    []byte
	changes []string // what it changes, without values
}

// newDraft checks the document text of a source against the one that holds. Its error is a refusal, for people. A
// document that changes nothing has the text of the one that holds.
func newDraft(text, current []byte) (draft, error) {
	plain, err := site.PlainSecrets(text)
	if err != nil {
		return draft{}, fmt.Errorf("%s is no YAML: %w", SiteName, err)
	}
	if len(plain) > 0 {
		return draft{}, fmt.Errorf("%s has a secret in the clear at %s; write \"[redacted]\" there, and the appliance puts in the "+
			"one that it has; then change that secret, for whoever read the source has it", SiteName, strings.Join(plain, ", "))
	}

	full := site.Unmask(text, current)
	to, problems := site.LoadAfter(SiteName, full, current)
	if len(problems) > 0 {
		return draft{}, errors.New(problems.String())
	}
	from, _, problems := site.Accept(SiteName, current)
	if len(problems) > 0 {
		return draft{}, fmt.Errorf("the document on the appliance has mistakes: %s", problems.String())
	}
	if err := checkOwn(from, to); err != nil {
		return draft{}, err
	}

	d := draft{text: full, changes: describe(site.Compare(from, to))}
	if bytes.Equal(full, current) {
		d.text = current
	}
	return d, nil
}

// checkOwn refuses what a source must not decide.
func checkOwn(from, to *site.Site) error {
	a, b := from.WithDefaults(), to.WithDefaults()
	if a.Name != b.Name {
		return fmt.Errorf("name: this appliance is of site %s, and the document of %s; correct appliance.follow.path, or replace "+
			"the document on the appliance", a.Name, b.Name)
	}
	if !reflect.DeepEqual(a.Appliance.Follow, b.Appliance.Follow) {
		return errors.New("appliance.follow: it is not as on the appliance, and a source does not decide what is followed; write it " +
			"as firstlightd site show has it, with \"[redacted]\" for its secrets, or replace the document on the appliance first")
	}
	if names := site.NewConsents(from, to); len(names) > 0 {
		return fmt.Errorf("overwrite of %s: a person consents on the appliance to lose what is on a disk, by the page or "+
			"firstlightd site replace; a source does not", strings.Join(names, ", "))
	}
	return nil
}

// describe are differences in a line each: nodes node-2: changed bmc.address.
func describe(all []site.Difference) (lines []string) {
	for _, d := range all {
		line := strings.TrimSpace(d.Section+" "+d.Name) + ": " + string(d.Change)
		if len(d.Keys) > 0 {
			line += " " + strings.Join(d.Keys, ", ")
		}
		lines = append(lines, line)
	}
	return lines
}
