// Package audit is who changed what on the appliance, and who read Secrets: the audit logs of the API server, of the
// upload API, of the page and of commands. All are files of Events of audit.k8s.io/v1, one a line, without what was written or read.
package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/stick"
)

// PageFile is the log of what people did, and were not let to do, on the page.
const PageFile = stick.DataDir + "/audit/page.log"

// CommandFile is the log of what root had the daemon do that loses data.
const CommandFile = stick.DataDir + "/audit/commands.log"

// UpdateFile is the log of updates, and of programs that were pushed, that root had done without a signature.
const UpdateFile = stick.DataDir + "/audit/updates.log"

// Files are the logs of the appliance that are being written. Complete ones are next to them (see Read).
func Files() []string {
	return []string{
		stick.DataDir + "/audit/audit.log",
		artifact.Dir + "/" + artifact.AuditFile,
		PageFile,
		CommandFile,
		UpdateFile,
	}
}

// Entry is one request.
type Entry struct {
	Time    time.Time `json:"time"`
	User    string    `json:"user"`
	As      string    `json:"as,omitempty"`      // on whose behalf, if not its own
	Program string    `json:"program,omitempty"` // what it says that it is
	From    string    `json:"from,omitempty"`    // address
	Verb    string    `json:"verb"`              // of Kubernetes, or the operation of S3
	Object  string    `json:"object"`            // NAMESPACE/RESOURCE.GROUP/NAME/SUBRESOURCE, as far as there are
	Code    int32     `json:"code"`              // of HTTP; 0: it has not ended
	Reason  string    `json:"reason,omitempty"`  // why it was refused
}

// newEntry is what an Event says.
func newEntry(e auditv1.Event) Entry {
	program, _, _ := strings.Cut(e.UserAgent, "/")
	entry := Entry{
		Time:    e.RequestReceivedTimestamp.Time,
		User:    e.User.Username,
		Program: program,
		Verb:    e.Verb,
		Object:  nameObject(e),
	}
	if e.ImpersonatedUser != nil {
		entry.As = e.ImpersonatedUser.Username
	}
	if len(e.SourceIPs) > 0 {
		entry.From = e.SourceIPs[0]
	}
	if e.ResponseStatus != nil {
		entry.Code = e.ResponseStatus.Code
		entry.Reason = cmp.Or(e.ResponseStatus.Message, string(e.ResponseStatus.Reason))
	}
	return entry
}

func nameObject(e auditv1.Event) string {
	o := e.ObjectRef
	if o == nil || o.Resource == "" {
		return e.RequestURI
	}

	resource := o.Resource
	if o.APIGroup != "" {
		resource += "." + o.APIGroup
	}
	parts := []string{o.Namespace, resource, o.Name, o.Subresource}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "/")
}
