package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api"
)

// apiDocument is the OpenAPI document as the agent serves it. Every exchange of the lab is compared
// with it: what it does not say must not come.
type apiDocument struct {
	doc      map[string]any
	patterns map[string]*regexp.Regexp     // by path
	schemas  map[string]*jsonschema.Schema // by $ref; all are made at once, because a compiler serves one goroutine
}

const docURL = "mem:///openapi.json"

func readAPI(t testing.TB, l *lab) *apiDocument {
	a := &apiDocument{patterns: map[string]*regexp.Regexp{}, schemas: map[string]*jsonschema.Schema{}}
	got := l.do("GET", "/openapi.json", nil)
	require.Equal(t, http.StatusOK, got.status, got.body)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(got.body))
	require.NoError(t, err)
	a.doc = doc.(map[string]any)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource(docURL, doc))
	for name := range asMap(get(doc, "components", "schemas")) {
		ref := "#/components/schemas/" + name
		a.schemas[ref], err = compiler.Compile(docURL + ref)
		require.NoError(t, err)
	}
	for path := range a.doc["paths"].(map[string]any) {
		a.patterns[path] = regexp.MustCompile("^" + regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "[^/]+") + "$")
	}
	return a
}

// operations calls yield for each operation.
func (a *apiDocument) operations(yield func(path, method string, op map[string]any)) {
	for path, item := range a.doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			yield(path, strings.ToUpper(method), op.(map[string]any))
		}
	}
}

func get(v any, keys ...string) any {
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// check compares an answer with what the document says of its operation. Of paths and
// methods that the document does not name only failures may come.
func (a *apiDocument) check(t testing.TB, method, path string, got answer) {
	t.Helper()
	where, _, _ := strings.Cut(path, "?")
	where, err := url.PathUnescape(where)
	require.NoError(t, err)
	for pattern, re := range a.patterns {
		op := get(a.doc, "paths", pattern, strings.ToLower(method))
		if op == nil || !re.MatchString(where) {
			continue
		}
		said := get(op, "responses", strconv.Itoa(got.status))
		if !assert.NotNil(t, said, "%s %s answers %d, which the document does not say: %s", method, path, got.status, got.body) {
			return
		}
		for name, h := range asMap(get(said, "headers")) {
			if value := got.header.Get(name); value != "" {
				a.header(t, method+" "+path, name, value, h)
			}
		}
		a.body(t, method+" "+path, said, got)
		return
	}
	assert.GreaterOrEqual(t, got.status, 400, "%s %s is not in the document", method, path)
	if method != http.MethodHead {
		assert.Equal(t, artifact.ProblemType, got.header.Get("Content-Type"), "%s %s", method, path)
	}
}

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }

func (a *apiDocument) header(t testing.TB, what, name, value string, h any) {
	t.Helper()
	schema := asMap(get(h, "schema"))
	if schema["type"] == "integer" {
		_, err := strconv.ParseUint(value, 10, 63)
		assert.NoError(t, err, "%s: header %s", what, name)
	}
	if pattern, ok := schema["pattern"].(string); ok {
		assert.Regexp(t, pattern, value, "%s: header %s", what, name)
	}
	if choices, ok := schema["enum"].([]any); ok {
		assert.Contains(t, choices, value, "%s: header %s", what, name)
	}
}

func (a *apiDocument) body(t testing.TB, what string, said any, got answer) {
	t.Helper()
	content := asMap(get(said, "content"))
	if content == nil {
		assert.Empty(t, got.body, "%s: a body that the document does not say", what)
		return
	}
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	media, ok := content[kind]
	if !assert.True(t, ok, "%s answers %s with %q: %s", what, strconv.Itoa(got.status), kind, got.body) {
		return
	}
	ref, _ := get(media, "schema", "$ref").(string)
	if ref == "" {
		return
	}
	schema := a.schemas[ref]
	require.NotNil(t, schema, "%s: schema %s", what, ref)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.body))
	require.NoError(t, err)
	assert.NoError(t, schema.Validate(value), "%s: %s", what, got.body)
}

func TestDocumentSaysEveryFieldOfTheContract(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	for name, of := range map[string]any{"Record": artifact.Metadata{}, "Description": artifact.Description{}, "List": artifact.List{}, "Problem": artifact.Problem{}} {
		var fields, said []string
		for i := range reflect.TypeOf(of).NumField() {
			tag, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			fields = append(fields, tag)
		}
		for p := range asMap(get(l.api.doc, "components", "schemas", name, "properties")) {
			said = append(said, p)
		}
		slices.Sort(fields)
		slices.Sort(said)
		assert.Equal(t, fields, said, name)
	}
}

// Nobody is told anything without credentials: not what exists, not what the API is.
func TestEveryOperationOfTheDocumentWantsCredentials(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	require.Equal(t, http.StatusCreated, l.announce("os_images", sample("there", 4096, nil)).status)
	walked := 0
	fill := strings.NewReplacer("{owner}", "alpha", "{clustername}", "beta", "{collection}", "os_images", "{imgname}", "there")
	for _, token := range []string{"", "wrong", strings.Repeat("x", 20000)} {
		l.token = token
		l.api.operations(func(path, method string, op map[string]any) {
			want := http.StatusUnauthorized
			if security, set := op["security"].([]any); set && len(security) == 0 {
				assert.Contains(t, []string{"/healthz", "/readyz"}, path, "no other route is open")
				want = http.StatusOK
			}
			got := l.do(method, fill.Replace(path), strings.NewReader("x"))
			assert.Equal(t, want, got.status, "%s %s: %s", method, path, got.body)
			if want == http.StatusUnauthorized {
				assert.Contains(t, got.header.Get("WWW-Authenticate"), "Bearer")
			}
			walked++
		})
		for _, unknown := range []string{"/", "/nowhere", base + "os_images/a/b/c", base + "../x", "//", artifact.Base} {
			got := l.do("GET", unknown, nil)
			assert.Equal(t, http.StatusUnauthorized, got.status, unknown)
		}
	}
	assert.GreaterOrEqual(t, walked, 3*13)
	l.token = "admin"
	assert.Equal(t, int64(0), l.do("GET", base+"os_images/there", nil).record(t).ImageOffset, "and nothing happened")
}

// TestWhoChangedWhatIsWrittenDown: also what was refused, by whoever is known; nothing of who only reads.
func TestWhoChangedWhatIsWrittenDown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	l := newLab(t, inFolder(t), func(c *api.Config) { c.Audit = audit.NewLog(file, c.Log) })
	content := []byte("content")
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("tool", len(content), nil)).status)
	require.Equal(t, http.StatusNoContent, l.patch(base+"binary_images/tool", 0, content).status)
	for _, token := range []string{"", "wrong", "reader"} {
		l.token = token
		assert.NotEqual(t, http.StatusNoContent, l.do("DELETE", base+"binary_images/tool", nil).status, token)
		l.do("GET", base+"binary_images/tool", nil)
	}
	l.token = "admin"
	require.Equal(t, http.StatusNoContent, l.do("DELETE", base+"binary_images/tool", nil).status)
	require.Equal(t, http.StatusNotFound, l.do("DELETE", base+"binary_images/tool", nil).status)

	var said []string
	entries, err := audit.Read([]string{file}, time.Time{})
	require.NoError(t, err)
	for _, e := range entries {
		assert.Equal(t, "127.0.0.1", e.From)
		said = append(said, fmt.Sprintf("%s %s %s %d", e.User, e.Verb, e.Object, e.Code))
	}
	const tool = " alpha/binary_images.artifact.firstlight.dev/tool "
	assert.Equal(t, []string{
		"admin create" + tool + "201", "admin patch" + tool + "204", "reader delete" + tool + "403",
		"admin delete" + tool + "204", "admin delete" + tool + "404",
	}, said)
}

func TestDocumentIsWholeJSON(t *testing.T) {
	l := newLab(t, inFolder(t), nil)
	ids := map[string]bool{}
	l.api.operations(func(path, method string, op map[string]any) {
		id := op["operationId"].(string)
		assert.False(t, ids[id], "operationId %s twice", id)
		ids[id] = true
		for name := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllString(path, -1) {
			_ = name
		}
	})
	text, err := json.Marshal(l.api.doc)
	require.NoError(t, err)
	for _, ref := range regexp.MustCompile(`"#(/components/[A-Za-z/]+)"`).FindAllStringSubmatch(string(text), -1) {
		assert.NotNil(t, get(l.api.doc, strings.Split(ref[1], "/")[1:]...), ref[1])
	}
}
