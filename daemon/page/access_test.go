package page

import (
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shownPages are all pages in all states, as whole pages.
func shownPages(t *testing.T) map[string]document {
	pages := map[string]document{}
	for name, of := range map[string]*state{
		"begun": begun(), "stopped": stopped(), "empty": ready(), "1": rack(1), "10": rack(10), "200": rack(200),
	} {
		b := logIn(t, newServer(t, of))
		paths := []string{"/", "/clusters", "/addons", "/networks", "/uploads", "/site", "/discovered", "/numbers", "/updates", "/appliance"}
		if len(of.doc.Nodes) > 0 {
			paths = append(paths, "/nodes/node-000", "/nodes/52:54:00:99:00:01", "/clusters/edge", "/clusters/lab")
			paths = append(paths, "/site/documents/4", "/site/documents/5")
			paths = append(paths, "/clusters/edge/pods/default/web", "/clusters/edge/pods/default/gone",
				tenantPath("edge", "alpha"), tenantPath("edge", "beta"), tenantPath("edge", "gone"), tenantPath("lab", "alpha"),
				chainPath("edge"), chainPath("lab"))
		}
		for _, path := range paths {
			pages[name+path] = b.open(path)
		}
	}
	of, places := acting()
	api := newAPIServer(t)
	api.hosts = of.hosts
	api.stick = of.siteText
	b := logInAs(t, newServerWith(t, of, api.deeds()), Owner)
	for _, path := range []string{"/", "/nodes/node-004", "/clusters", "/clusters/edge", chainPath("far"), "/updates", "/secrets", "/appliance"} {
		pages["owner"+path] = b.open(path)
	}
	for _, path := range []string{webPath, webPath + "/logs/web", webPath + "/logs/web/previous", webPath + "/logs/none"} {
		pages["owner"+path] = b.open(path)
	}
	for _, path := range []string{
		nodeLogsPath("node-000"), nodeLogsPath("node-000") + "/ironic", nodeLogsPath("node-002"), nodeLogsPath("node-003"),
		nodeLogsPath("52:54:00:99:00:01"),
	} {
		pages["owner"+path] = b.open(path)
	}
	for _, path := range []string{"/site", "/discovered", "/uploads", editPath, editPath + "?from=4"} {
		pages["owner"+path] = b.open(path)
	}
	for _, path := range []string{tenantPath("edge", "alpha"), tenantEditLink("edge", "alpha"), tenantEditLink("edge", "")} {
		pages["owner"+path] = b.open(path)
	}
	for name, text := range map[string]string{"sound": "namespaces: [alpha-prod]\nreclaim: Delete\n", "wrong": "namespace: [x]\n"} {
		pages["owner checked a Tenant, "+name] = parse(t, checkTenant(b, "alpha", text).Body.Bytes())
	}
	for name, edit := range map[string]string{"sound": "# more\n", "wrong": "nmae: x\n"} {
		form := documentForm(t, b, editPath, func(text string) string { return text + edit })
		pages["owner checked, "+name] = parse(t, b.ask("POST", editPath, form.Encode()).Body.Bytes())
	}
	for _, a := range actions() {
		pages["owner"+a.path(places[a.name])] = b.open(a.path(places[a.name]))
		if a.choice != nil {
			pages["owner chose"+a.path(places[a.name])] = b.open(a.path(places[a.name]) + "?choice=" + url.QueryEscape(chosen[a.name]))
		}
	}
	s := newServer(t, ready())
	pages["/login"] = newVisitor(t, s).open("/login")
	pages["/nobody"] = parse(t, logIn(t, s).ask("GET", "/nobody", "").Body.Bytes())
	issued, i, _ := newIssuedServer(t)
	pages["/login with an issuer"] = newVisitor(t, issued).open("/login")
	pages["/logged in by it"] = parse(t, i.walk(newVisitor(t, issued), "vic", nil).Body.Bytes())
	pages["/login refused by it"] = parse(t, i.walk(newVisitor(t, issued), "eve", nil).Body.Bytes())
	_, _, pages["/login refused"] = send(t, s, "aaaa")
	return pages
}

// TestPagesAreForEverybody holds what of WCAG 2.2 can be read off the markup.
func TestPagesAreForEverybody(t *testing.T) {
	for name, d := range shownPages(t) {
		assert.Equal(t, "en", d.all("html")[0].attr("lang"), "%s: 3.1.1", name)
		assert.NotEmpty(t, d.all("title")[0].text(), "%s: 2.4.2", name)
		assert.Len(t, d.all("h1"), 1, "%s: 2.4.6", name)
		assert.Len(t, d.all("main"), 1, "%s: 1.3.1", name)

		last := 0
		for _, h := range d.all("h1", "h2", "h3", "h4") {
			level, _ := strconv.Atoi(h.Data[1:])
			assert.LessOrEqual(t, level, last+1, "%s: the heading %q leaves a level out", name, h.text())
			assert.NotEmpty(t, h.text(), name)
			last = level
		}

		ids := map[string]bool{}
		for _, e := range d.all() {
			if id, ok := e.lookup("id"); ok {
				assert.False(t, ids[id], "%s: the id %s is there twice", name, id)
				ids[id] = true
			}
		}
		for _, e := range d.all() {
			for _, reference := range []string{"aria-labelledby", "aria-describedby", "for"} {
				list, _ := e.lookup(reference)
				for _, id := range strings.Fields(list) {
					assert.True(t, ids[id], "%s: %s leads nowhere: %s", name, reference, id)
				}
			}
		}

		labelled := map[string]bool{}
		for _, l := range d.all("label") {
			labelled[l.attr("for")] = true
		}
		for _, i := range d.all("input", "textarea", "select") {
			assert.True(t, i.attr("type") == "hidden" || labelled[i.attr("id")], "%s: an input without a label", name)
		}
		for _, p := range d.all("progress") {
			assert.NotEmpty(t, p.attr("aria-label"), "%s: 4.1.2", name)
		}
		for _, section := range d.all("section", "nav") {
			assert.NotEmpty(t, section.attr("aria-labelledby")+section.attr("aria-label"), "%s: a region without a name", name)
		}
		for _, h := range d.all("th") {
			assert.Contains(t, []string{"row", "col"}, h.attr("scope"), name)
		}
		for _, a := range d.all("a", "button", "summary") {
			assert.NotEmpty(t, a.text(), "%s: 2.4.4", name)
		}
		if d.all("header") != nil {
			assert.Equal(t, "#main", d.all("a")[0].attr("href"), "%s: 2.4.1, the first link skips to the content", name)
			assert.Equal(t, "status", d.id("headline").attr("role"), "%s: 4.1.3", name)
			assert.Equal(t, "status", d.id("live").attr("role"), "%s: 4.1.3", name)
		}
	}
}

// TestPagesNeedNothingElse holds pages to the policy that they are sent with: nothing inline, nothing from elsewhere.
func TestPagesNeedNothingElse(t *testing.T) {
	for name, d := range shownPages(t) {
		for _, e := range d.all() {
			for _, a := range e.Attr {
				assert.False(t, a.Key == "style" || strings.HasPrefix(a.Key, "on"), "%s: <%s %s>", name, e.Data, a.Key)
				if a.Key == "href" || a.Key == "src" || a.Key == "action" {
					assert.Regexp(t, `^(/[^/]|/$|#)`, a.Val, "%s: <%s>", name, e.Data)
				}
			}
			if e.Data == "script" || e.Data == "style" {
				assert.Empty(t, e.text(), "%s: <%s>", name, e.Data)
			}
		}
	}
	for name, a := range assets() {
		text := strings.ReplaceAll(string(a.content), `xmlns="http://www.w3.org/2000/svg"`, "")
		assert.NotRegexp(t, `https?://|//[a-z]+\.|@import|url\(`, text, name)
		assert.NotRegexp(t, `innerHTML|eval\(|document\.write`, text, name)
	}
}

var variable = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)

// TestColoursHaveContrast computes WCAG 2.2, 1.4.3 and 1.4.11, for light and dark.
func TestColoursHaveContrast(t *testing.T) {
	css, err := files.ReadFile("assets/page.css")
	require.NoError(t, err)
	light, dark, found := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	require.True(t, found)
	dark, rest, _ := strings.Cut(dark, "\n}\n")
	assert.NotRegexp(t, `#[0-9a-f]{3,8}\b`, rest, "colours are in the variables alone")
	for scheme, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			colours[m[1]] = m[2]
		}
		require.Len(t, colours, 12, scheme)
		for _, pair := range [][2]string{
			{"ink", "paper"}, {"ink", "sheet"}, {"pale", "paper"}, {"pale", "sheet"}, {"link", "paper"}, {"link", "sheet"},
			{"bad", "paper"}, {"bad", "sheet"}, {"busy", "paper"}, {"busy", "sheet"}, {"good", "paper"}, {"good", "sheet"},
			{"bad", "bad-sheet"}, {"busy", "busy-sheet"}, {"good", "good-sheet"},
			{"ink", "bad-sheet"}, {"ink", "busy-sheet"}, {"ink", "good-sheet"},
		} {
			got := contrast(t, colours[pair[0]], colours[pair[1]])
			assert.GreaterOrEqual(t, got, 4.5, "%s: %s on %s has %.2f", scheme, pair[0], pair[1], got)
		}
		assert.GreaterOrEqual(t, contrast(t, colours["line"], colours["paper"]), 3.0, scheme)
	}
}

// contrast is the ratio of two colours' luminances, as WCAG 2.2 defines it.
func contrast(t *testing.T, a, b string) float64 {
	luminance := func(colour string) (sum float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(colour[2*i:2*i+2], 16, 8)
			require.NoError(t, err)
			c := float64(n) / 255
			if c <= 0.04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
