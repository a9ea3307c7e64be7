package site

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decodeText decodes the types of value.go and the addresses of net/netip.
func (r *reader) decodeText(n *yaml.Node, v reflect.Value, path string) {
	quoted := isString(n)
	if n.Kind != yaml.ScalarNode {
		r.wrongType(n, v.Type(), path)
		return
	}
	var err error
	switch p := v.Addr().Interface().(type) {
	case text:
		err = p.parse(n.Value)
	case *netip.Addr:
		*p, err = parseAddr(n.Value)
	case *netip.Prefix:
		*p, err = parsePrefix(n.Value)
	}
	if err != nil {
		r.add(n.Line, path, err.Error())
	} else if !quoted {
		r.wrongType(n, v.Type(), path)
	}
}

func (r *reader) decodeScalar(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.String:
		if !isString(n) {
			r.wrongType(n, v.Type(), path)
			return
		}
		v.SetString(n.Value)
		if enum := tag.Get("enum"); enum != "" {
			known := strings.Split(enum, "|")
			for _, k := range known {
				if k == n.Value {
					return
				}
			}
			r.add(n.Line, path, fmt.Sprintf("%s is not known; use one of: %s", quote(n.Value), strings.Join(known, ", ")))
		} else if form := tag.Get("pattern"); form != "" && !matchesPattern(form, n.Value) {
			r.add(n.Line, path, fmt.Sprintf("%s does not fit; use %s", quote(n.Value), tag.Get("hint")))
		} else if n.Value == "" || len(n.Value) > 512 || !isPrintable(n.Value) {
			r.add(n.Line, path, "give 1 to 512 printable characters in one line, or remove the line")
		}
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			r.wrongType(n, v.Type(), path)
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
			r.wrongType(n, v.Type(), path)
			return
		}
		least, _ := strconv.ParseInt(tag.Get("min"), 10, 64)
		most, _ := strconv.ParseInt(tag.Get("max"), 10, 64)
		if i < least || i > most {
			r.add(n.Line, path, fmt.Sprintf("%d is out of bounds; use %d to %d", i, least, most))
			return
		}
		v.SetInt(i)
	default:
		r.add(n.Line, path, "no such kind of value: "+v.Type().String())
	}
}

func isPrintable(s string) bool {
	for _, c := range s {
		if !strconv.IsPrint(c) {
			return false
		}
	}
	return true
}

func isString(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!str" || n.ShortTag() == "!!timestamp")
}

func isText(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix]():
		return true
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[text]())
}

// wrongType reports the kind of n, never its value: that could be a secret.
func (r *reader) wrongType(n *yaml.Node, t reflect.Type, path string) {
	have := map[string]string{"!!map": "a map", "!!seq": "a list", "!!int": "a number", "!!float": "a number", "!!bool": "true or false"}[n.ShortTag()]
	if have == "" {
		have = "text"
	}
	hint := ""
	switch {
	case expectedType(t) == "text" && n.Kind == yaml.ScalarNode:
		hint = "; put it in quotes"
	case t.Kind() == reflect.Slice:
		hint = "; write each item in a line of its own after '- '"
	case t.Kind() == reflect.Bool:
		hint = "; write true or false without quotes"
	case t.Kind() == reflect.Int:
		hint = "; write a whole number without quotes"
	case expectedType(t) == "a map":
		hint = "; write KEY: VALUE lines indented below it"
	}
	r.add(n.Line, path, fmt.Sprintf("this is %s, want %s%s", have, expectedType(t), hint))
}

func expectedType(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isText(t) || t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a number"
	}
	return "a map"
}
