package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
)

// otherServer is what the site says of node-007 that is another server's.
var otherServer = "the boot MAC 52:54:00:00:07:07, not " + mac(7)

// acting is a rack in which each action makes sense somewhere; places says where, by the action's name.
func acting() (of *state, places map[string]string) {
	of = rack(10)
	inService := func(name string, online bool) {
		h := of.hosts[name]
		h.Status.Provisioning.State, h.Spec.Online, h.Status.PoweredOn = metal3api.StateProvisioned, online, online
		h.Spec.Image = &metal3api.Image{URL: "http://172.22.0.1:6180/images/one.raw"}
	}
	inService("node-004", true)
	inService("node-005", false)
	of.hosts["node-001"].Status.Provisioning.State = metal3api.StateAvailable
	of.hosts["node-002"].Annotations = map[string]string{metal3api.PausedAnnotation: ""}
	of.doc.Nodes[0].Rule, of.doc.Nodes[3].Rule = "running", "maintenance"
	of.losable = map[string]string{"node-001": "data-00000000000a"}
	of.otherServers = map[string]string{"node-007": otherServer}
	of.hosts["node-001"].Status.HardwareDetails.Storage = append(of.hosts["node-001"].Status.HardwareDetails.Storage,
		metal3api.Storage{Name: "/dev/sdb", SizeBytes: 480e9, WWN: "0x5b"})
	of.certificates = map[string]string{"node-006": strings.Repeat("ab", 32)}
	of.details[0].Awaits, of.details[0].Node = true, "node-abc"
	of.details[0].Why, of.details[0].Fix = "its BMC 10.30.0.101 takes the login of \"admin\"; it awaits approval", "run: firstlightd approve node-abc"
	of.details = append(of.details,
		status.UnknownMachine{BMC: "10.30.0.102", Model: "Maker Box 9", Serial: "S10", Node: "node-s10", Awaits: true,
			Found: "50:9a:4c:00:00:01 leased 10.30.0.102 and answers a presence ping as IPMI does"},
		status.UnknownMachine{MAC: "52:54:00:99:00:03", Model: "Maker Box 9", Serial: "S11",
			Why: "it names no BMC", Fix: "enable its BMC, or name it in nodes of site.yaml"},
	)
	of.doc.Clusters = append(of.doc.Clusters, status.Cluster{
		Name: "far", State: status.ClusterReady, Namespace: "default", Kind: status.KindProvisioning,
		Updates: []status.NodeUpdate{updatingFar(), nightly()},
	})
	of.site.Discover = &site.Discover{Count: 3, Approve: site.ApproveEach}
	of.site.Nodes = []site.Node{
		{Name: "node-001", BootMAC: site.MAC(mac(1)), BMC: &site.BMC{}}, {Name: "node-002", BootMAC: site.MAC(mac(2))},
	}

	return of, map[string]string{
		"approve":            "52:54:00:99:00:01",
		"adopt":              "node-000",
		"power-on":           "node-005",
		"power-off":          "node-004",
		"reboot":             "node-004",
		"inspect":            "node-001",
		"resume":             "node-002",
		"end-maintenance":    "node-003",
		"overwrite":          "node-001",
		"erase":              "node-001",
		"replace-server":     "node-007",
		"trust":              "node-006",
		"kubeconfig":         "edge",
		"replace":            draftName(),
		"put-tenant":         "edge/alpha",
		"remove-tenant":      "edge/alpha",
		"begin-node-updates": "edge",
		"end-node-updates":   "default/nightly",

		"pause-node-updates":  "default/page-far",
		"resume-node-updates": "default/nightly",
	}
}

// updatingFar is the NodeUpdate that the page made of cluster far, at work.
func updatingFar() status.NodeUpdate {
	return status.NodeUpdate{
		Name: "default/page-far", State: "updating", Nodes: "1/3", Text: "node far-2 is drained", Workers: 1, Reboot: "IfRequired",
		Members: []status.UpdatedNode{
			{Name: "far-1", State: "UpToDate", Version: "v1.36.3", Changes: 4, Updated: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)},
			{Name: "far-2", State: "Draining", Text: "2 pods are still there", Version: "v1.36.2", Changes: 4},
			{Name: "far-3", State: "Unknown", Text: "no route to host"},
		},
	}
}

// nightly is one that somebody made by kubectl, and paused.
func nightly() status.NodeUpdate {
	return status.NodeUpdate{
		Name: "default/nightly", State: "waiting", Nodes: "3/3", Paused: true, Workers: 2, Reboot: "Always",
		Window: &status.UpdateWindow{Days: []string{"Sat", "Sun"}, Start: "22:00", Hours: 4},
	}
}

// previewedErase is what a daemon says of two disks, of which some would be erased.
func (s *apiServer) previewedErase(node string, disks []string) (status.Erase, error) {
	e := status.Erase{
		Node:      node,
		Host:      string(s.hosts[node].UID),
		Inspected: s.hosts[node].Status.OperationHistory.Inspect.End.Time,
	}
	all := map[string]status.EraseDisk{
		"D1":   {Name: "/dev/nvme0n1", Serial: "D1", Bytes: 960e9, Holds: []string{"gpt", "ext4"}},
		"0x5b": {Name: "/dev/sdb", WWN: "0x5b", Bytes: 480e9},
	}
	for _, name := range disks {
		d, ok := all[name]
		if !ok {
			return status.Erase{}, fmt.Errorf("%s is not erased: %q names 0 of its disks", node, name)
		}
		e.Disks = append(e.Disks, d)
		delete(all, name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e.Kept = append(e.Kept, all[name])
	}
	return e, nil
}

// apiServer answers as the API server does that has the objects of Rights, for what the page asks it.
type apiServer struct {
	*httptest.Server
	mu       sync.Mutex
	done     []string // what was done, here and by the deeds of the daemon
	forbids  bool     // somebody took all bindings away
	reviewed []string // who asked for its rights
	stick    []byte   // the site document there
	hosts    map[string]*metal3api.BareMetalHost
	looks    int                     // how often the daemon is asked before what follows
	swap     func(e *status.Erase)   // what becomes of a server then; nil: nothing
	exchange func(r *status.Replace) // what becomes of a replacement then; nil: nothing
	trusts   *site.OIDC              // whose people it answers; nil: nobody's
	unread   error                   // why a document that was replaced is not in effect; nil: it is
}

func newAPIServer(t testing.TB) *apiServer {
	s := &apiServer{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, fmt.Sprintf(format, args...))
}

func (s *apiServer) takeDone() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.done
	s.done = nil
	return done
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, group := r.Header.Get("Impersonate-User"), r.Header.Get("Impersonate-Group")
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.reviewed = append(s.reviewed, user+" "+group)
		s.mu.Unlock()
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = s.allows(group, a.Group, a.Resource, a.Verb)
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"): // as the API server maps them
		claims := payloadOf(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		var review authenticationv1.SelfSubjectReview
		review.Status.UserInfo.Username = "firstlight:oidc:" + claims.Email
		for _, g := range []string{"everybody", "ops"} {
			if slices.Contains(claims.Groups, g) && s.trusts != nil {
				review.Status.UserInfo.Groups = append(review.Status.UserInfo.Groups, kube.OIDCGroup(s.trusts, g))
			}
		}
		if review.Status.UserInfo.Groups == nil {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized, Message: "Unauthorized",
			})
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case strings.Contains(r.URL.Path, "/nodeupdates"):
		f := strings.Split(r.URL.Path, "/") // "", apis, group, version, namespaces, NAMESPACE, nodeupdates, NAME
		verb := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
		if !s.allows(group, "bpa.akraino.org", "nodeupdates", verb) {
			s.forbid(w)
			return
		}
		switch verb {
		case "create":
			s.note("%s: %s/page-edge %s", user, f[5], bytes.TrimSpace(body))
		case "patch":
			s.note("%s: %s/%s %s", user, f[5], f[7], body)
		default:
			s.note("%s: deletes %s/%s", user, f[5], f[7])
		}
		_, _ = io.WriteString(w, `{"apiVersion":"bpa.akraino.org/v1alpha1","kind":"NodeUpdate","metadata":{"name":"x"}}`)
	case r.Method == http.MethodPatch:
		if !s.allows(group, "metal3.io", "baremetalhosts", "patch") {
			s.forbid(w)
			return
		}
		s.note("%s: %s %s", user, path.Base(r.URL.Path), body)
		_, _ = io.WriteString(w, `{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost","metadata":{"name":"x"}}`)
	default:
		http.NotFound(w, r)
	}
}

func (s *apiServer) forbid(w http.ResponseWriter) {
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "no",
	})
}

// allows decides by the rules of the roles that Rights binds to a group.
func (s *apiServer) allows(group, apiGroup, resource, verb string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forbids {
		return false
	}
	rules := map[string][]rbacv1.PolicyRule{}
	var bound []string
	for _, o := range Rights(nil) {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole/"+o.Name] = o.Rules
		case *rbacv1.Role:
			rules["Role/"+o.Name] = o.Rules
		case *rbacv1.ClusterRoleBinding:
			if o.Subjects[0].Name == group {
				bound = append(bound, o.RoleRef.Kind+"/"+o.RoleRef.Name)
			}
		case *rbacv1.RoleBinding:
			if o.Subjects[0].Name == group {
				bound = append(bound, o.RoleRef.Kind+"/"+o.RoleRef.Name)
			}
		}
	}
	return slices.ContainsFunc(bound, func(role string) bool {
		return slices.ContainsFunc(rules[role], func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, apiGroup) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	})
}

// deeds are those of a daemon that notes what it is asked to do.
func (s *apiServer) deeds() Deeds {
	return Deeds{
		API: func() (*rest.Config, error) {
			return &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, nil
		},
		Approve: func(nodes []string) ([]string, error) {
			s.note("approve %s", nodes)
			var approved []string
			for _, n := range nodes {
				name, _, _ := strings.Cut(n, "/")
				approved = append(approved, name)
			}
			return approved, nil
		},
		Adopt: func(nodes []string) ([]string, error) {
			s.note("adopt %s", nodes)
			return nodes, nil
		},
		TrustBMC: func(node, fingerprint string) (string, string, error) {
			s.note("trust %s %s", node, fingerprint)
			return "", fingerprint, nil
		},
		EndMaintenance: func(_ context.Context, node string) error {
			s.note("end maintenance of %s", node)
			return nil
		},
		Reload: func() error {
			s.note("reload")
			return nil
		},
		Erase: func(_ context.Context, node string, disks []string, word string) (status.Erase, error) {
			e, err := s.previewedErase(node, disks)
			if s.looks--; s.looks < 0 && s.swap != nil {
				s.swap(&e)
			}
			e.Word = e.NewWord()
			switch {
			case err != nil || word == "":
				return e, err
			case word != e.Word:
				return status.Erase{}, provisioning.ErrNotAsRead
			}
			s.note("erase %s of %s", disks, node)
			return e, nil
		},
		Replace: func(node, word string) (status.Replace, error) {
			r := status.Replace{Node: node, Host: string(s.hosts[node].UID), New: otherServer}
			if s.looks--; s.looks < 0 && s.exchange != nil {
				s.exchange(&r)
			}
			r.Word = r.NewWord()
			switch {
			case word == "":
				return r, nil
			case word != r.Word:
				return status.Replace{}, provisioning.ErrNotAsRead
			}
			s.note("replace the server of %s", node)
			return r, nil
		},
		Kubeconfig: func(_ context.Context, c status.Cluster) ([]byte, error) {
			s.note("kubeconfig %s", c.Name)
			return []byte("kubeconfig of " + c.Name), nil
		},
		ReadSite: func() ([]byte, error) { return s.stick, nil },
		ReplaceSite: func(text []byte, base, by string) error {
			if base != sitedocument.Digest(s.stick) {
				return sitedocument.ErrChanged
			}
			s.stick = text
			s.note("replace site by %s", by)
			if s.unread != nil {
				return errors.Join(sitedocument.ErrNotRead, s.unread)
			}
			return nil
		},
		PreviewSite: func(context.Context, *site.Site) (map[string]metal3.Block, error) {
			return map[string]metal3.Block{"node-001": {Sentence: "its disk /dev/sda is not empty"}}, nil
		},
		ReadTenant: func(_ context.Context, c status.Cluster, as rest.ImpersonationConfig, name string) (workload.TenantSpec, error) {
			if as.UserName != "firstlight:ann@laptop" || !slices.Equal(as.Groups, []string{"firstlight:owner"}) || name != "alpha" {
				return workload.TenantSpec{}, fmt.Errorf("%s reads no Tenant %s of %s", as.UserName, name, c.Name)
			}
			return alpha(), nil
		},
		PutTenant: func(
			_ context.Context, c status.Cluster, as rest.ImpersonationConfig, t workload.TenantSpec, dryRun bool,
		) error {
			if _, ok := t.Spec["namespaces"]; !ok {
				return errors.New("spec.namespaces: Required value")
			}
			if !dryRun {
				s.note("%s: put %s of %s, version %q: %s", as.UserName, t.Name, c.Name, t.Version, formatSpec(t.Spec))
			}
			return nil
		},
		RemoveTenant: func(_ context.Context, c status.Cluster, as rest.ImpersonationConfig, t workload.TenantID) error {
			s.note("%s: remove %s %s of %s", as.UserName, t.Name, t.UID, c.Name)
			return nil
		},
		PreviewUpdate: previewedUpdate,
		BeginUpdate: func(image string) error {
			s.note("update to %s", image)
			return nil
		},
		Restart: func(context.Context) error {
			s.note("restart")
			return nil
		},
		Rotate: func(secret string, names []string) (string, error) {
			s.note("rotate %s %q", secret, names)
			return secret + " is being replaced.", nil
		},
		WatchConsole: func(_ context.Context, node string) (Console, error) {
			s.note("watch %s", node)
			return nil, &ConsoleEnd{"the BMC opens no console", "enable serial over LAN"}
		},
		TypeAtConsole: func(node string, text []byte) error {
			s.note("type %q at %s", text, node)
			return nil
		},
		Bundle: func(_ context.Context, w io.Writer) error {
			s.note("bundle")
			_, err := io.WriteString(w, "archive")
			return err
		},
	}
}
