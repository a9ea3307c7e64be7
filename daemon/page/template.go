package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/console"
)

//go:embed templates assets
var files embed.FS

// safeHTML is what a template of ours made.
type safeHTML = template.HTML

// templates are parsed once: a mistake in one is found by any test.
var templates = sync.OnceValues(func() (*template.Template, error) {
	return template.New("").Funcs(template.FuncMap{
		"asset":   assetPath,
		"bytes":   formatBytes[int64],
		"clock":   formatClock,
		"date":    formatDate,
		"seconds": formatSeconds,
	}).ParseFS(files, "templates/*.html")
})

// execute renders a template to memory, so that a failure leaves nothing half said.
func execute(name string, data any) ([]byte, error) {
	t, err := templates()
	if err != nil {
		return nil, fmt.Errorf("parse templates of the page: %w", err)
	}

	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}

	return b.Bytes(), nil
}

// asset is a file that pages load.
type asset struct {
	content     []byte
	contentType string
}

// assets are the files under the names that they are served by, which have a digest in them: page.1f2e3d4c.css. So
// a browser keeps one for good, and gets the new one after an update.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	for _, name := range []string{"page.css", "page.js", "upload.js", "console.js", "site.js", "icon.svg"} {
		content, err := fs.ReadFile(files, "assets/"+name)
		if err != nil {
			panic(err) // it is in the binary
		}
		types := map[string]string{
			".css": "text/css; charset=utf-8",
			".js":  "text/javascript; charset=utf-8",
			".svg": "image/svg+xml",
		}
		sum := sha256.Sum256(content)
		base, ext := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
		all[base+"."+hex.EncodeToString(sum[:4])+ext] = asset{content, types[ext]}
	}

	return all
})

// assetPath is where a file is served.
func assetPath(name string) (string, error) {
	ext := path.Ext(name)
	for served := range assets() {
		if strings.HasPrefix(served, strings.TrimSuffix(name, ext)+".") && path.Ext(served) == ext {
			return "/assets/" + served, nil
		}
	}
	return "", fmt.Errorf("there is no file %s", name)
}

func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request, _ *session) {
	a, ok := assets()[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}

	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.content)
}

// formatClock is a time of day with its zone, which is the appliance's.
func formatClock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("15:04:05 MST")
}

// formatDate is a day with a time of it, in UTC.
func formatDate(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// formatSeconds is a length of time in words.
func formatSeconds(s float64) string {
	return console.FormatDuration(time.Duration(s * float64(time.Second)))
}

// formatBytes is a size as makers of disks count: 960 GB.
func formatBytes[T ~int64 | ~int](n T) string {
	size, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, next
	}
	if size < 10 && unit != "B" {
		return fmt.Sprintf("%.1f %s", size, unit)
	}
	return fmt.Sprintf("%.0f %s", size, unit)
}
