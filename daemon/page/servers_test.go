package page

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
)

// TestDisksAreChosenBeforeTheyAreErased: none is chosen for anybody, what is on each that was is said before the name is
// typed, and those and no other are erased.
func TestDisksAreChosenBeforeTheyAreErased(t *testing.T) {
	r := newFixture(t)
	erase := findAction(t, "erase")
	b := logInAs(t, r.Server, Owner)
	path := erase.path("node-001")
	form := b.open(path)
	boxes := form.id("main").all("input")
	require.Len(t, boxes, 2)
	for i, want := range []string{"D1", "0x5b"} {
		_, isChosen := boxes[i].lookup("checked")
		assert.Equal(t, []any{want, "checkbox", false}, []any{boxes[i].attr("value"), boxes[i].attr("type"), isChosen})
	}
	assert.Equal(t, []string{"/dev/nvme0n1, 960 GB, Disk 1, serial number D1", "/dev/sdb, 480 GB, WWN 0x5b"}, texts(form.all("label")))
	assert.Nil(t, form.id("error"), "nothing was sent yet")

	none := b.ask("GET", path+"?continue=yes", "")
	assert.Equal(t, http.StatusUnprocessableEntity, none.Code)
	assert.Equal(t, "Nothing was chosen. Choose at least one.", parse(t, none.Body.Bytes()).id("error").text())
	other := b.ask("GET", path+"?choice=D1&choice=D9", "")
	assert.Equal(t, http.StatusUnprocessableEntity, other.Code)
	again := parse(t, other.Body.Bytes())
	assert.Equal(t, `node-001 is not erased: "D9" names 0 of its disks`, again.id("error").text())
	_, isChosen := again.id("option-0").lookup("checked")
	assert.True(t, isChosen, "what was chosen stays")

	asked := b.open(path + "?choice=0x5b&choice=D1").id("main")
	assert.Equal(t, []string{
		"Erased: /dev/sdb 480 GB wwn 0x5b", "Erased: /dev/nvme0n1 960 GB serialNumber D1, holds gpt, ext4",
	}, texts(asked.all("li")))
	fields := url.Values{"name": {"node-001"}}
	for _, input := range asked.all("input") {
		if input.attr("type") == "hidden" {
			fields.Add(input.attr("name"), input.attr("value"))
		}
	}
	fields.Set("name", "node-002")
	many := url.Values{"csrf": {fields.Get("csrf")}}
	for i := range 120 { // as many as a server may have
		many.Add("choice", fmt.Sprintf("serial-%0100d", i))
	}
	assert.Equal(t, http.StatusUnprocessableEntity, b.ask("POST", path, many.Encode()).Code, "not that the form is too long")
	wrong := b.ask("POST", path, fields.Encode())
	assert.Equal(t, http.StatusUnprocessableEntity, wrong.Code)
	asked = parse(t, wrong.Body.Bytes()).id("main")
	assert.Len(t, asked.all("li"), 2, "both disks are asked about again")

	fields = url.Values{"name": {"node-001"}}
	for _, input := range asked.all("input") {
		if input.attr("type") == "hidden" && input.attr("name") != choiceField {
			fields.Add(input.attr("name"), input.attr("value"))
		}
	}
	fields.Set(choiceField, "D1") // of another form: what was read is erased
	w := b.ask("POST", path, fields.Encode())
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, []string{"erase [0x5b D1] of node-001"}, r.api.takeDone())
	assert.Contains(t, b.open(w.Header().Get("Location")).id("notice").text(), "node-001 is erased: /dev/sdb 480 GB wwn 0x5b; ")

	_, no := r.perform(t.Context(), erase, order{by: ann(Owner), name: "node-001"})
	require.NotNil(t, no, "no disk that was not named is erased")
	assert.Empty(t, r.api.takeDone())
}

// TestAnotherInspectionIsReadBeforeDisksAreErased: what is on them may be something else.
func TestAnotherInspectionIsReadBeforeDisksAreErased(t *testing.T) {
	r := newFixture(t)
	erase := findAction(t, "erase")
	b := logInAs(t, r.Server, Owner)
	form := r.form(b, erase)
	h := r.of.hosts["node-001"].DeepCopy()
	h.Status.OperationHistory.Inspect.End = metav1.NewTime(time.Now())
	h.ResourceVersion = "8"
	r.of.hosts["node-001"] = h
	r.hub.forget()
	assert.Equal(t, http.StatusConflict, r.post(b, erase, form).Code)
	assert.Empty(t, r.api.takeDone())
}

// TestWhatChangesBeforeTheDeedIsReadAgain: after the page has looked for the last time, too.
func TestWhatChangesBeforeTheDeedIsReadAgain(t *testing.T) {
	for name, swap := range map[string]func(*status.Erase){
		"another disk":             func(e *status.Erase) { e.Disks[0].WWN = "0x5c" },
		"other data":               func(e *status.Erase) { e.Disks[0].Holds = []string{"xfs"} },
		"a disk more":              func(e *status.Erase) { e.Disks = append(e.Disks, e.Disks[0]) },
		"a disk more that is kept": func(e *status.Erase) { e.Kept = append(e.Kept, e.Disks[0]) },
		"a new host of the name":   func(e *status.Erase) { e.Host = "uid-2" },
		"another inspection":       func(e *status.Erase) { e.Inspected = time.Now() },
	} {
		for looks := range 3 { // when the answer comes, before the deed, and at it
			r := newFixture(t)
			erase, b := findAction(t, "erase"), logInAs(t, r.Server, Owner)
			form := r.form(b, erase)
			r.api.swap, r.api.looks = swap, looks
			w := r.post(b, erase, form)
			assert.Equal(t, http.StatusConflict, w.Code, name)
			assert.Contains(t, strings.ToLower(parse(t, w.Body.Bytes()).id("error").text()), "read it again", name)
			assert.Empty(t, r.api.takeDone(), name)
		}
	}

	for name, exchange := range map[string]func(*status.Replace){
		"another new server":     func(r *status.Replace) { r.New = "the BMC ipmi://10.0.0.9" },
		"a new host of the name": func(r *status.Replace) { r.Host = "uid-2" },
	} {
		for looks := range 2 { // before the deed, and at it
			r := newFixture(t)
			replace, b := findAction(t, "replace-server"), logInAs(t, r.Server, Owner)
			form := r.form(b, replace)
			r.api.exchange, r.api.looks = exchange, looks
			assert.Equal(t, http.StatusConflict, r.post(b, replace, form).Code, name)
			assert.Empty(t, r.api.takeDone(), name)
		}
	}
}

// TestWhoseDisksMayBeErased: those of a server that nobody uses.
func TestWhoseDisksMayBeErased(t *testing.T) {
	for name, change := range map[string]func(*metal3api.BareMetalHost){
		"in service":    func(h *metal3api.BareMetalHost) { h.Status.Provisioning.State = metal3api.StateProvisioned },
		"installed":     func(h *metal3api.BareMetalHost) { h.Spec.Image = &metal3api.Image{URL: "x"} },
		"used":          func(h *metal3api.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine"} },
		"not inspected": func(h *metal3api.BareMetalHost) { h.Status.HardwareDetails = nil },
		"paused":        func(h *metal3api.BareMetalHost) { h.Annotations = map[string]string{metal3api.PausedAnnotation: ""} },
		"being erased": func(h *metal3api.BareMetalHost) {
			h.Annotations = map[string]string{metal3api.PausedAnnotation: label.Erasing}
		},
		"being inspected": func(h *metal3api.BareMetalHost) { h.Status.Provisioning.State = metal3api.StateInspecting },
	} {
		p := mustPicture(t, newFixture(t).Server)
		_, ok := mayBeErased(p, "node-001")
		require.True(t, ok)
		change(p.hosts["node-001"])
		_, ok = mayBeErased(p, "node-001")
		assert.False(t, ok, name)
	}
	p := mustPicture(t, newFixture(t).Server)
	p.noBMC["node-001"] = true
	_, ok := mayBeErased(p, "node-001")
	assert.False(t, ok, "no BMC starts the ramdisk")
}

// TestAPageSaysWhatWasErased: after it, too.
func TestAPageSaysWhatWasErased(t *testing.T) {
	of := rack(10)
	of.doc.Nodes[1].Erased = "was erased: /dev/sda serialNumber A on 2026-11-20 12:00:00 UTC by overwriting it"
	b := logIn(t, newServer(t, of))
	assert.Contains(t, b.open("/nodes/node-001").id("stands").text(), "It was erased: /dev/sda serialNumber A on 2026-11-20 12:00:00 UTC")
	assert.NotContains(t, b.open("/nodes/node-002").id("stands").text(), "was erased")
}
