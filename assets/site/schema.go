package site

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// SchemaID names the published JSON Schema; it is a name, nothing is served there.
const SchemaID = "urn:firstlight:site:v1"

// Schema is the JSON Schema (2020-12) of the document, for editors and other tools. It
// says what is true of each value alone; Load also checks what values mean together.
func Schema() ([]byte, error) {
	s := schemaOf(reflect.TypeFor[Site](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = SchemaID
	s["title"] = "Firstlight site"
	s["type"] = []string{"object", "null"} // an empty file is a site
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}

	return append(data, '\n'), nil
}

func schemaOf(t reflect.Type, tag reflect.StructTag) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if yamldoc.IsText(t) {
		s := map[string]any{"type": "string"}
		if p := patternOf(t); p != "" {
			s["pattern"] = p
		}
		if reflect.PointerTo(t).Implements(reflect.TypeFor[yamldoc.BoolText]()) {
			s["type"] = []string{"boolean", "string"}
		}
		return s
	}

	switch t.Kind() {
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i := range t.NumField() {
			f := t.Field(i)
			p := schemaOf(f.Type, f.Tag)
			p["description"] = f.Tag.Get("doc")
			if d := f.Tag.Get("default"); d != "" {
				p["description"] = f.Tag.Get("doc") + " Default: " + d + "."
			}

			properties[f.Tag.Get("yaml")] = p
			if f.Tag.Get("required") == "true" {
				required = append(required, f.Tag.Get("yaml"))
			}
		}

		s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			s["required"] = required
		}

		return s
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), tag)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		least, _ := strconv.Atoi(tag.Get("min"))
		most, _ := strconv.Atoi(tag.Get("max"))
		return map[string]any{"type": "integer", "minimum": least, "maximum": most}
	}

	if enum := tag.Get("enum"); enum != "" {
		return map[string]any{"type": "string", "enum": strings.Split(enum, "|")}
	}
	if form := tag.Get("pattern"); form != "" {
		return map[string]any{"type": "string", "pattern": form}
	}

	return map[string]any{"type": "string", "minLength": 1, "maxLength": 512}
}

// patternOf is the form of a text value, never narrower than its parser.
func patternOf(t reflect.Type) string {
	const hex, word = `[0-9A-Fa-f]`, `[A-Za-z0-9._:-]`
	switch t {
	case reflect.TypeFor[Name]():
		return `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`
	case reflect.TypeFor[MAC]():
		return `^` + hex + `{2}([:-]` + hex + `{2}){5}$`
	case reflect.TypeFor[Interface]():
		return `^` + word + `{1,17}$`
	case reflect.TypeFor[Range]():
		return `^[0-9A-Fa-f.:]+ *- *[0-9A-Fa-f.:]+$`
	case reflect.TypeFor[Duration]():
		return `^[0-9][0-9.]*[a-zµμ]+[0-9a-zµμ.]*$`
	case reflect.TypeFor[Certificates]():
		return `-----BEGIN CERTIFICATE-----`
	case reflect.TypeFor[Memory](), reflect.TypeFor[Amount]():
		return `^[0-9]{1,9}(` + memoryUnits + `)$`
	case reflect.TypeFor[Host]():
		return `^[A-Za-z0-9.:-]{1,253}$`
	case reflect.TypeFor[URL]():
		return `^[Hh][Tt][Tt][Pp][Ss]?://[^/@]+`
	case reflect.TypeFor[GitURL]():
		return `^([Hh][Tt][Tt][Pp][Ss]?://[^/@]+|[Ss][Ss][Hh]://[^/]+/)`
	case reflect.TypeFor[SHA256]():
		return `^` + hex + `{64}$`
	case reflect.TypeFor[Consent]():
		return `^(true|false|data-[0-9a-f]{12})$`
	case reflect.TypeFor[CertificateCheck]():
		return `^(pin|ca|none|true|false)$`
	case reflect.TypeFor[BMCAddress]():
		return `^(ipmi|redfish(-virtualmedia)?(\+https?)?)://[^?#]+$`
	case reflect.TypeFor[LinkAddress]():
		return `^(dhcp|none|[0-9A-Fa-f.:]+/[0-9]{1,3})$`
	case reflect.TypeFor[netip.Addr]():
		return `^[0-9A-Fa-f.:]+$`
	case reflect.TypeFor[netip.Prefix]():
		return `^[0-9A-Fa-f.:]+/[0-9]{1,3}$`
	}
	return ""
}
