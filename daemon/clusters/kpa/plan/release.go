package plan

import (
	"slices"

	helm "helm.sh/helm/v4/pkg/release/v1"
)

// Release is through which revisions a Component went on one cluster. It is kept there.
type Release struct {
	Installed []string   `json:"installed,omitempty"` // revisions that were completed; the last one is there now
	Serial    int        `json:"serial,omitempty"`    // of the last operation, from 1 on
	Operation *Operation `json:"operation,omitempty"` // in progress
}

// Operation is a change of the revision, or the removal, with the hooks that it runs.
type Operation struct {
	Name     string   `json:"name"`
	Revision string   `json:"revision,omitempty"`
	Done     []string `json:"done,omitempty"` // hooks that have succeeded
}

// Operations, as Helm's commands are called.
const (
	Install   = "install"
	Upgrade   = "upgrade"
	Rollback  = "rollback"
	Uninstall = "uninstall"
)

// maxInstalled bounds how many revisions are remembered.
const maxInstalled = 10

// Begin is the release when a revision is asked for: what is in progress for it continues. A revision that was
// completed before is rolled back to. Without an operation in the answer that revision is there already.
func (r Release) Begin(revision string) Release {
	o := r.Operation
	switch {
	case o != nil && o.Name == Uninstall:
		r.Installed = nil
	case o != nil && o.Revision == revision:
		return r
	case o == nil && len(r.Installed) > 0 && r.Installed[len(r.Installed)-1] == revision:
		return r
	}

	name := Upgrade
	switch {
	case len(r.Installed) == 0:
		name = Install
	case slices.Contains(r.Installed, revision):
		name = Rollback
	}
	return r.begin(Operation{Name: name, Revision: revision})
}

// BeginUninstall is the release when it is removed.
func (r Release) BeginUninstall() Release {
	if r.Operation != nil && r.Operation.Name == Uninstall {
		return r
	}
	return r.begin(Operation{Name: Uninstall})
}

func (r Release) begin(o Operation) Release {
	r.Serial++
	r.Operation = &o
	return r
}

// MarkDone is the release when a hook of its operation has succeeded.
func (r Release) MarkDone(hook string) Release {
	o := *r.Operation
	o.Done = append(slices.Clone(o.Done), hook)
	r.Operation = &o
	return r
}

// IsDone reports whether a hook has succeeded in this operation.
func (r Release) IsDone(hook string) bool { return slices.Contains(r.Operation.Done, hook) }

// Complete is the release when its operation is through. What was rolled back is forgotten: to ask for it again is an
// upgrade.
func (r Release) Complete() Release {
	revision := r.Operation.Revision
	r.Operation = nil
	if i := slices.Index(r.Installed, revision); i >= 0 {
		r.Installed = slices.Clone(r.Installed[:i+1])
		return r
	}

	r.Installed = append(slices.Clone(r.Installed), revision)
	r.Installed = r.Installed[max(0, len(r.Installed)-maxInstalled):]
	return r
}

// Events are the moments at which hooks of an operation run: before the objects are written or removed, and after they
// are healthy or gone.
func (o Operation) Events() (before, after helm.HookEvent) {
	switch o.Name {
	case Install:
		return helm.HookPreInstall, helm.HookPostInstall
	case Upgrade:
		return helm.HookPreUpgrade, helm.HookPostUpgrade
	case Rollback:
		return helm.HookPreRollback, helm.HookPostRollback
	}
	return helm.HookPreDelete, helm.HookPostDelete
}
