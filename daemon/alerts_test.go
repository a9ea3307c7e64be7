package daemon

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// alert is one rule of docs/metrics/alerts.yaml.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics/alerts.yaml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// TestThePageListsTheAlerts: each with its severity and how long it must hold, and no other.
func TestThePageListsTheAlerts(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	var listed, ruled [][]string
	row := regexp.MustCompile("(?m)^\\| `(Firstlight[A-Za-z]+)` \\| (\\w+) \\| (\\w+) \\| [^|]+ \\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1:])
	}

	for _, a := range alerts(t) {
		held := a.For
		if held == "" {
			held = "0m"
		}
		ruled = append(ruled, []string{a.Alert, a.Labels["severity"], held})
		assert.Contains(t, []string{"critical", "warning"}, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.NotEmpty(t, a.Annotations["description"], a.Alert)
	}
	assert.Equal(t, ruled, listed)
}

// TestAlertsNamePagesAndSituationsThatThereAre: what an alert tells a person to look up can be found.
func TestAlertsNamePagesAndSituationsThatThereAre(t *testing.T) {
	why, err := os.ReadFile("../docs/why.md")
	require.NoError(t, err)
	page := regexp.MustCompile(`docs/[\w-]+\.md`)
	situations := regexp.MustCompile(`\bare ((?:[a-z]+-[a-z]+(?: or )?)+) in firstlightd why`)
	seen := 0
	for _, a := range alerts(t) {
		for _, name := range page.FindAllString(a.Annotations["description"], -1) {
			assert.FileExists(t, "../"+name, a.Alert)
		}

		for _, m := range situations.FindAllStringSubmatch(a.Annotations["description"], -1) {
			for _, situation := range strings.Split(m[1], " or ") {
				seen++
				assert.Contains(t, string(why), "\n| `"+situation+"` |", a.Alert)
			}
		}
	}
	assert.Equal(t, 5, seen)
}

// TestRulesAndDashboardReadWhatIsExposed: a query of a metric or label that no scrape has shows nothing for ever.
func TestRulesAndDashboardReadWhatIsExposed(t *testing.T) {
	exposed := map[string][]string{"up": nil} // Prometheus' own
	for _, m := range regexp.MustCompile(`(?m)^(firstlight_[a-z_]+)(?:\{(.*)\})? `).FindAllStringSubmatch(scrape(t), -1) {
		exposed[m[1]] = nil
		for _, label := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(m[2], -1) {
			exposed[m[1]] = append(exposed[m[1]], label[1])
		}
	}

	check := func(title, expr, text string) {
		metrics := regexp.MustCompile(`\b(?:firstlight_[a-z_]+|up\b)`).FindAllString(expr, -1)
		assert.NotEmpty(t, metrics, "%s: %s", title, expr)
		labels := []string{"instance", "job"} // of the target
		for _, name := range metrics {
			assert.Contains(t, exposed, name, title)
			labels = append(labels, exposed[name]...)
		}
		for _, name := range labelsRead(expr, text) {
			assert.Contains(t, labels, name, "%s: %s", title, expr)
		}
	}
	for _, a := range alerts(t) {
		check(a.Alert, a.Expr, a.Annotations["summary"]+a.Annotations["description"])
	}
	for _, p := range dashboard(t).Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr, target.LegendFormat)
		}
		for _, transformation := range p.Transformations {
			for _, column := range transformation.Options.Include.Names {
				check(p.Title, p.Targets[0].Expr, "{{"+column+"}}")
			}
		}
	}
}

// labelsRead are the labels that a query selects or groups by, and that a text beside it shows.
func labelsRead(expr, text string) (names []string) {
	for _, read := range []struct{ pattern, in string }{
		{`([a-z_]+)(?:=~|!=|!~|=)"`, expr},
		{`by \(([a-z_]+)\)`, expr},
		{`\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}`, text},
	} {
		for _, m := range regexp.MustCompile(read.pattern).FindAllStringSubmatch(read.in, -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// grafana is what is read of docs/metrics/dashboard.json.
type grafana struct {
	SchemaVersion int
	Panels        []struct {
		ID              int
		Title           string
		Datasource      struct{ UID string }
		GridPos         struct{ X, Y, W, H int }
		Targets         []struct{ Expr, LegendFormat string }
		Transformations []struct {
			Options struct{ Include struct{ Names []string } }
		}
	}
}

func dashboard(t *testing.T) (d grafana) {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// TestTheDashboardIsLaidOut: every panel has an id of its own, asks the chosen data source and covers no other.
func TestTheDashboardIsLaidOut(t *testing.T) {
	ids := map[int]bool{}
	covered := map[[2]int]string{}
	for _, p := range dashboard(t).Panels {
		assert.False(t, ids[p.ID], "%s: id %d is twice", p.Title, p.ID)
		ids[p.ID] = true
		assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, covered[at], p.Title)
				covered[at] = p.Title
			}
		}
	}
}

// TestEachAlertIsTried: alerts_test.yaml has a series on which it fires and one on which it does not.
func TestEachAlertIsTried(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics/alerts_test.yaml")
	require.NoError(t, err)
	for _, a := range alerts(t) {
		assert.Contains(t, string(text), "\n  - name: "+a.Alert+" fires\n")
		assert.Contains(t, string(text), "\n  - name: "+a.Alert+" does not fire\n")
	}
}

// findPromtool looks where scripts/deps puts it, too.
func findPromtool(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	for _, name := range []string{filepath.Join(cache, "firstlight/promtool/usr/bin/promtool"), "promtool"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	t.Skip("there is no promtool; scripts/deps test brings it")
	return ""
}

// TestAlertsFireOnBadSeriesAlone: as Prometheus itself reads and evaluates them.
func TestAlertsFireOnBadSeriesAlone(t *testing.T) {
	promtool := findPromtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = "../docs/metrics"
		output, err := command.CombinedOutput()
		assert.NoError(t, err, "%s", output)
	}
}
