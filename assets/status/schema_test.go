package status

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

// schemaID names the published JSON Schema; it is a name, nothing is served there. The version is that of the path at
// which the daemon serves the document.
const schemaID = "urn:firstlight:status:v1"

type object = map[string]any

// source is what this package declares: its types and, of each, its constants.
type source struct {
	types     map[string]*ast.TypeSpec
	says      map[string]string // comments of types
	constants map[string][]string
}

func readSource(t *testing.T) source {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	s := source{map[string]*ast.TypeSpec{}, map[string]string{}, map[string][]string{}}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.add(t, g)
			}
		}
	}
	return s
}

func (s source) add(t *testing.T, g *ast.GenDecl) {
	t.Helper()
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.types[spec.Name.Name] = spec
			s.says[spec.Name.Name] = join(g.Doc)
		case *ast.ValueSpec:
			of, isNamed := spec.Type.(*ast.Ident)
			if !isNamed || g.Tok != token.CONST {
				continue
			}
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			s.constants[of.Name] = append(s.constants[of.Name], word)
		}
	}
}

// join is a comment in one line.
func join(comment *ast.CommentGroup) string { return strings.Join(strings.Fields(comment.Text()), " ") }

// schema is the JSON Schema (2020-12) of the status document. Keys that it does not have are allowed: fields are only
// ever added.
func (s source) schema(t *testing.T) object {
	t.Helper()
	definitions := object{}
	s.define(t, "Document", definitions)
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     schemaID,
		"title":   "Firstlight status",
		"$ref":    "#/$defs/Document",
		"$defs":   definitions,
	}
}

// define adds a type, and those that its fields have.
func (s source) define(t *testing.T, name string, definitions object) {
	t.Helper()
	if definitions[name] != nil {
		return
	}

	d := object{"description": s.says[name]}
	definitions[name] = d
	fields, isStruct := s.types[name].Type.(*ast.StructType)
	if !isStruct {
		require.NotEmpty(t, s.constants[name], name)
		d["type"], d["enum"] = "string", s.constants[name]
		return
	}

	properties, required := object{}, []string{}
	for _, f := range fields.Fields.List {
		tag, err := strconv.Unquote(f.Tag.Value)
		require.NoError(t, err)
		key, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		require.NotEmpty(t, key, name)
		p := s.schemaOf(t, f.Type, definitions)
		if text := strings.TrimSpace(join(f.Doc) + " " + join(f.Comment)); text != "" {
			p["description"] = text
		}

		properties[key] = p
		if options == "" {
			required = append(required, key)
			if p["type"] == "array" {
				p["type"] = []string{"array", "null"} // none
			}
		}
	}
	d["type"], d["properties"], d["required"] = "object", properties, required
}

func (s source) schemaOf(t *testing.T, e ast.Expr, definitions object) object {
	t.Helper()
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.schemaOf(t, e.X, definitions)
	case *ast.ArrayType:
		return object{"type": "array", "items": s.schemaOf(t, e.Elt, definitions)}
	case *ast.SelectorExpr:
		require.Equal(t, "Time", e.Sel.Name)
		return object{"type": "string", "format": "date-time"}
	case *ast.Ident:
		switch e.Name {
		case "string":
			return object{"type": "string"}
		case "bool":
			return object{"type": "boolean"}
		case "int", "int64":
			return object{"type": "integer"}
		case "float64":
			return object{"type": "number"}
		}
		require.Contains(t, s.types, e.Name)
		s.define(t, e.Name, definitions)
		return object{"$ref": "#/$defs/" + e.Name}
	}
	require.Fail(t, "no schema is known for this type of a field", "%T", e)
	return nil
}

func TestPublishedSchema(t *testing.T) {
	text, err := json.MarshalIndent(readSource(t).schema(t), "", "  ")
	require.NoError(t, err)
	goldentest.Check(t, "../../docs/status.schema.json", string(text)+"\n")
}

func compile(t *testing.T, schema object) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource(schemaID, decode(t, schema)))
	compiled, err := c.Compile(schemaID)
	require.NoError(t, err)
	return compiled
}

// decode is a value as a validator reads it.
func decode(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return doc
}

// fill sets all that a value has, and its lists to one item.
func (s source) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		s.fill(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)))
			return
		}
		for i := range v.NumField() {
			s.fill(v.Field(i))
		}
	case reflect.String:
		word := "text"
		if words := s.constants[v.Type().Name()]; words != nil {
			word = words[0]
		}
		v.SetString(word)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		v.SetInt(7)
	}
}

// TestTheSchemaHasEveryKeyOfTheDocument: with all that it has required and nothing else allowed, it takes a document with
// all that there is.
func TestTheSchemaHasEveryKeyOfTheDocument(t *testing.T) {
	s := readSource(t)
	schema := s.schema(t)
	for _, definition := range schema["$defs"].(object) {
		d := definition.(object)
		if properties, isStruct := d["properties"].(object); isStruct {
			d["required"], d["additionalProperties"] = slices.Sorted(maps.Keys(properties)), false
		}
	}
	var full Document
	s.fill(reflect.ValueOf(&full).Elem())
	assert.NoError(t, compile(t, schema).Validate(decode(t, full)))
}

func TestTheSchemaTakesAndRefuses(t *testing.T) {
	schema := compile(t, readSource(t).schema(t))
	first := Document{State: StateWorking, Launch: Launch{State: LaunchNothing}} // before anything is known
	change := func(do func(object)) object {
		d := decode(t, first).(object)
		do(d)
		return d
	}
	assert.NoError(t, schema.Validate(decode(t, first)))
	assert.NoError(t, schema.Validate(change(func(d object) { d["later"] = "a key of a later version" })))
	for what, d := range map[string]object{
		"no state":         change(func(d object) { delete(d, "state") }),
		"an unknown state": change(func(d object) { d["state"] = "well" }),
		"no time":          change(func(d object) { d["since"] = "yesterday" }),
		"no list":          change(func(d object) { d["nodes"] = object{} }),
		"a stage's state":  change(func(d object) { d["stages"] = []any{decode(t, Stage{Name: "links-up"})} }),
		"a launch's nodes": change(func(d object) { d["launch"].(object)["nodes"] = "3" }),
	} {
		assert.Error(t, schema.Validate(d), what)
	}
}
