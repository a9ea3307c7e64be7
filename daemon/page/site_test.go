package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// secretOfSite is in every recorded document, and on no page.
const secretOfSite = "correct horse"

// recordedSite is the document of a rack, and those that were applied before it.
func recordedSite(nodes int) ([]byte, []sitedocument.Entry) {
	var b strings.Builder
	b.WriteString("# Rack 7, in room 4. The old password: " + secretOfSite + "\nname: rack-7\n" +
		"networks: {provisioning: {interface: eno2}}\n" +
		"nodeDefaults:\n  bmc: {username: admin, password: \"" + secretOfSite + "\"}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "- name: node-%03d\n  macs: [%q]\n  bmc:\n    address: redfish://10.30.%d.%d/redfish/v1/Systems/1\n",
			i, mac(i), i/250, i%250+1)
	}
	text := b.String()
	first := text[:strings.LastIndex(text, "- name")]
	if nodes == 1 {
		first = "name: rack-7\n"
	}
	at := time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)
	return []byte(text), []sitedocument.Entry{
		{Number: 4, Time: at, Text: []byte(first)},
		{Number: 5, Time: at.Add(time.Hour), By: "ann@laptop", Text: []byte(text)},
	}
}

// draftText is a document that was checked on every server.
const draftText = "name: rack-8\n"

// keyOfDrafts is what every server of the tests names drafts by.
var keyOfDrafts = []byte("key of drafts")

func draftName() string { return (&drafts{key: keyOfDrafts}).nameOf([]byte(draftText)) }

// document is what a browser sends to have a document checked: the form as it was shown, with another text.
func documentForm(t *testing.T, b browser, path string, edit func(string) string) url.Values {
	d := b.open(path)
	fields := url.Values{}
	for _, input := range d.id("editor").all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	shown := d.id("text")
	require.NotNil(t, shown)
	text := strings.TrimPrefix(shown.FirstChild.Data, "\n")
	fields.Set("document", strings.ReplaceAll(edit(text), "\n", "\r\n"))
	return fields
}

func TestTheSiteIsShownWithoutItsSecrets(t *testing.T) {
	for _, role := range Roles() {
		b := logInAs(t, newServer(t, rack(10)), role)
		d := b.open("/site")
		assert.Contains(t, d.id("document").text(), "redfish://10.30.0.10/redfish/v1/Systems/1")
		assert.Contains(t, d.id("document").text(), `password: "[redacted]"`)
		assert.Contains(t, d.id("history").text(), "2026-11-29 09:00:00 UTCann@laptop")
		assert.Contains(t, d.id("history").text(), "2026-11-29 08:00:00 UTCfound on the stick")
		assert.Equal(t, role == Owner, strings.Contains(d.id("document").text(), "Edit it"))

		past := b.open("/site/documents/5")
		assert.Contains(t, past.id("document").text(), "+- name: node-009")
		assert.NotContains(t, past.id("document").text(), "node-001", "lines that are the same are left out")
		assert.Contains(t, b.open("/site/documents/4").id("document").text(), "It is the first that is kept.")
		assert.Equal(t, role == Owner, strings.Contains(b.open("/site/documents/4").id("document").text(), "Go back to it"))
		assert.Equal(t, http.StatusNotFound, b.ask("GET", "/site/documents/3", "").Code)
		for _, path := range []string{"/site", "/site/documents/4", "/site/documents/5"} {
			shown := b.ask("GET", path, "").Body.String()
			assert.NotContains(t, shown, secretOfSite, path)
			text, history := recordedSite(10)
			for _, of := range [][]byte{text, history[0].Text} {
				if role != Owner {
					assert.NotContains(t, shown, sitedocument.Digest(of)[:16], "a password could be tried by it")
				}
			}
		}
		active, _ := recordedSite(10)
		assert.Equal(t, role == Owner, strings.Contains(d.id("document").text(), sitedocument.Digest(active)[:16]))
	}

	b := logIn(t, newServer(t, ready()))
	assert.Contains(t, b.open("/site").id("empty").text(), "has no site.yaml")
	assert.Contains(t, b.open("/site").id("history").text(), "None is kept yet")

	of := ready()
	of.siteText = []byte("a: [\npassword: " + secretOfSite)
	b = logIn(t, newServer(t, of))
	assert.Contains(t, b.open("/site").id("document").text(), "is no YAML")
	assert.NotContains(t, b.ask("GET", "/site", "").Body.String(), secretOfSite)
}

// TestADocumentIsCheckedBeforeItIsApplied: each mistake with its line; then what would change and what would be held.
func TestADocumentIsCheckedBeforeItIsApplied(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	check := func(edit func(string) string) (int, document) {
		w := b.ask("POST", editPath, documentForm(t, b, editPath, edit).Encode())
		return w.Code, parse(t, w.Body.Bytes())
	}

	code, d := check(func(text string) string {
		return strings.Replace(text, "name: rack-7", "nmae: rack-7", 1) + "clusterz: 3\n"
	})
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, d.id("problems").text(), "site.yaml:2: nmae: unknown key")
	assert.Contains(t, d.id("problems").text(), "clusterz: unknown key")
	assert.Contains(t, d.id("text").text(), "nmae: rack-7", "what was typed is not lost")
	assert.Nil(t, d.id("checked"))

	code, d = check(func(text string) string {
		text = text[:strings.LastIndex(text, "- name")]
		return strings.Replace(text, `"[redacted]"`, `"battery staple"`, 1) + "- {name: added, macs: [\"52:54:00:77:00:01\"]}\n"
	})
	require.Equal(t, http.StatusOK, code, d.id("main").text())
	checked := d.id("checked").text()
	assert.Contains(t, checked, "site.yaml: ok: 10 nodes, 0 clusters")
	assert.Contains(t, checked, "site.yaml: without a BMC: added: a person switches each on")
	assert.Contains(t, checked, "node node-009removedIt is left alone as it is.")
	assert.Contains(t, checked, "node addedaddedIt is checked, inspected, installed and verified.")
	assert.Contains(t, checked, "node node-003changedbmc.password")
	assert.Contains(t, checked, "node-001: its disk /dev/sda is not empty")
	assert.NotContains(t, d.id("checked").text(), "battery", "the difference hides secrets")
	assert.Empty(t, r.api.takeDone(), "nothing was changed")

	code, d = check(func(text string) string { return text })
	assert.Equal(t, http.StatusOK, code)
	assert.NotNil(t, d.id("same"))
	code, d = check(func(text string) string { return text + "# one more line\n" })
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, d.id("checked").text(), "The site stays the same")
	code, d = check(func(string) string { return " " })
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, d.id("error").text(), "is empty")
	code, d = check(func(text string) string {
		return strings.Replace(text, "name: node-003", "name: node-3", 1) +
			"  os: {password: \"[redacted]\"}\n"
	})
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, d.id("problems").text(), "put the secret itself here", "a secret goes to nothing but what it was of")
}

// TestACheckedDocumentIsApplied: with the secrets that the form hid, once, and in place of what it was compared with.
func TestACheckedDocumentIsApplied(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	before := string(r.of.siteText)
	check := func(path string, edit func(string) string) document {
		w := b.ask("POST", editPath, documentForm(t, b, path, edit).Encode())
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return parse(t, w.Body.Bytes())
	}
	apply := func(checked document, typed string) (int, document) {
		links := checked.id("checked").all("a")
		require.Equal(t, "Apply it", links[len(links)-1].text())
		path := links[len(links)-1].attr("href")
		d := b.open(path)
		fields := url.Values{"name": {typed}}
		for _, input := range d.id("main").all("input") {
			if input.attr("name") != "name" {
				fields.Set(input.attr("name"), input.attr("value"))
			}
		}
		w := b.ask("POST", path, fields.Encode())
		if w.Code != http.StatusSeeOther {
			return w.Code, parse(t, w.Body.Bytes())
		}
		return w.Code, b.open(w.Header().Get("Location"))
	}

	rename := func(text string) string { return strings.Replace(text, "name: rack-7", "name: rack-8", 1) }
	checked := check(editPath, rename)
	code, d := apply(checked, "")
	assert.Equal(t, http.StatusSeeOther, code)
	assert.Equal(t, "site.yaml is replaced and in effect.", d.id("notice").text())
	assert.Equal(t, rename(before), string(r.api.stick), "with its secrets and comments")
	assert.Equal(t, []string{"replace site by ann@laptop"}, r.api.takeDone())

	code, d = apply(checked, "")
	assert.Equal(t, http.StatusSeeOther, code)
	assert.Equal(t, "Not done: "+sitedocument.ErrChanged.Error(), d.id("notice").text(), "it was compared with another one")
	assert.Empty(t, r.api.takeDone())

	r.api.unread = errors.New("data is full")
	code, d = apply(check(editPath, func(text string) string { return text + "# more\n" }), "")
	assert.Equal(t, http.StatusSeeOther, code)
	assert.Contains(t, d.id("notice").text(), "site.yaml is replaced, and not in effect yet")
	assert.Contains(t, d.id("notice").text(), "data is full; run on the appliance: firstlightd reload")
	assert.Len(t, r.api.takeDone(), 1)
	r.api.unread = nil

	consent := func(text string) string { return text + "  overwrite: true\n" }
	code, d = apply(check(editPath, consent), "")
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, d.id("error").text(), "type rack-8")
	assert.Contains(t, d.id("main").text(), "may be lost from then on: node-009")
	assert.Empty(t, r.api.takeDone())
	code, _ = apply(check(editPath, consent), "rack-8")
	assert.Equal(t, http.StatusSeeOther, code)
	assert.Len(t, r.api.takeDone(), 1)

	back := check(editPath+"?from=4", func(text string) string { return text })
	assert.Contains(t, back.id("checked").text(), "node node-009removed")
	code, _ = apply(back, "")
	assert.Equal(t, http.StatusSeeOther, code)
	assert.Equal(t, string(r.of.history[0].Text), string(r.api.stick), "one goes back through the same check")
}

// TestADocumentThatWasReplacedMeanwhileIsNotLost: neither the other one nor what was typed.
func TestADocumentThatWasReplacedMeanwhileIsNotLost(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	form := documentForm(t, b, editPath, func(text string) string { return text + "# mine\n" })
	r.api.stick = []byte("name: other\n")
	w := b.ask("POST", editPath, form.Encode())
	require.Equal(t, http.StatusConflict, w.Code)
	d := parse(t, w.Body.Bytes())
	assert.Contains(t, d.id("error").text(), "Somebody has replaced site.yaml meanwhile")
	assert.Contains(t, d.id("text").text(), "# mine")
	assert.Contains(t, d.id("text").text(), `"[redacted]"`)

	again := documentFormOf(d)
	w = b.ask("POST", editPath, again.Encode())
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, parse(t, w.Body.Bytes()).id("checked").text(), "node node-000added")
	assert.Empty(t, r.api.takeDone())
}

// TestADraftIsAppliedInPlaceOfWhatWasConfirmed: somebody else may check the same text against another document meanwhile.
func TestADraftIsAppliedInPlaceOfWhatWasConfirmed(t *testing.T) {
	r := newFixture(t)
	p, err := r.hub.current()
	require.NoError(t, err)
	a := newReplaceAction()
	about, ok := a.offered(p, draftName())
	require.True(t, ok)
	confirmed := order{by: Person{"ann@laptop", Owner}, name: draftName(), about: about}

	r.api.stick = []byte("name: other\n")
	r.drafts.add([]byte(draftText), sitedocument.Digest(r.api.stick), &site.Site{Name: "other"}, &site.Site{Name: "rack-8"})
	_, err = a.do(t.Context(), r.Server, confirmed)
	require.ErrorIs(t, err, sitedocument.ErrChanged)
	assert.Empty(t, r.api.takeDone())
	assert.Equal(t, "name: other\n", string(r.api.stick))
}

// TestNoLogHasTheDigestOfADocument: whoever reads one, or a support bundle, could try passwords until it is the same.
func TestNoLogHasTheDigestOfADocument(t *testing.T) {
	r := newFixture(t)
	var one, other drafts
	first := one.add([]byte(draftText), "", new(site.Site), new(site.Site))
	assert.Equal(t, first.name, one.add([]byte(draftText), "", new(site.Site), new(site.Site)).name)
	assert.NotEqual(t, first.name, other.add([]byte(draftText), "", new(site.Site), new(site.Site)).name, "keys are random")

	b := logInAs(t, r.Server, Owner)
	a := findAction(t, replaceAction)
	require.Equal(t, http.StatusSeeOther, r.post(b, a, r.form(b, a)).Code)
	log, err := os.ReadFile(r.log)
	require.NoError(t, err)
	assert.Contains(t, string(log), draftName())
	assert.NotContains(t, string(log), sitedocument.Digest([]byte(draftText))[:8])
}

// documentFormOf is the form that a page shows, as it is.
func documentFormOf(d document) url.Values {
	fields := url.Values{}
	for _, input := range d.id("editor").all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	fields.Set("document", d.id("text").FirstChild.Data)
	return fields
}

func TestOnlyOwnersEditTheSite(t *testing.T) {
	r := newFixture(t)
	form := documentForm(t, logInAs(t, r.Server, Owner), editPath, func(text string) string { return text })
	for _, role := range []Role{Viewer, Operator} {
		b := logInAs(t, r.Server, role)
		assert.Equal(t, http.StatusForbidden, b.ask("GET", editPath, "").Code)
		form.Set("csrf", b.open("/").all("input")[0].attr("value"))
		assert.Equal(t, http.StatusForbidden, b.ask("POST", editPath, form.Encode()).Code)
	}

	b := logInAs(t, r.Server, Owner)
	form.Del("csrf")
	assert.Equal(t, http.StatusForbidden, b.ask("POST", editPath, form.Encode()).Code, "no token")
	r.api.forbids = true
	w := b.ask("POST", editPath, documentForm(t, b, editPath, func(text string) string { return text }).Encode())
	assert.Equal(t, http.StatusForbidden, w.Code, "the API server says no")
}

func TestTheEditorSaysWhatFails(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	long := documentForm(t, b, editPath, func(string) string { return strings.Repeat("#", maxDocumentForm) }).Encode()
	assert.Equal(t, http.StatusRequestEntityTooLarge, b.ask("POST", editPath, long).Code)
	assert.Equal(t, http.StatusNotFound, b.ask("GET", editPath+"?from=99", "").Code)

	r.deeds.PreviewSite = func(context.Context, *site.Site) (map[string]metal3.Block, error) { return nil, errors.New("no") }
	w := b.ask("POST", editPath, documentForm(t, b, editPath, func(text string) string { return text + "# x\n" }).Encode())
	assert.Contains(t, parse(t, w.Body.Bytes()).id("checked").text(), "is not known: the appliance's API server does not answer")

	r.api.stick = []byte("a: [\npassword: " + secretOfSite)
	d := b.open(editPath)
	assert.Contains(t, d.id("error").text(), "Write a whole one here")
	assert.NotContains(t, d.id("main").text(), secretOfSite)
	r.api.stick = nil
	d = b.open(editPath)
	assert.Nil(t, d.id("error"))

	r.deeds.ReadSite = func() ([]byte, error) { return nil, errors.New("the stick does not answer") }
	w = b.ask("GET", editPath, "")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Contains(t, parse(t, w.Body.Bytes()).id("error").text(), "the stick does not answer")
}
