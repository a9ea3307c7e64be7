package yamldoc

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Text is a value of a document that is written as one word.
type Text interface {
	// ParseText says in one line what is wrong and what to do.
	ParseText(s string) error
}

// BoolText is a Text that may be written as true or false without quotes, too.
type BoolText interface {
	Text
	TakesBool()
}

// decodeText decodes the types that are Text and the addresses of net/netip.
func (d *Document) decodeText(n *yaml.Node, v reflect.Value, path string) {
	quoted, value := isString(n), n.Value
	if _, takes := v.Addr().Interface().(BoolText); takes && n.ShortTag() == "!!bool" {
		quoted, value = true, strings.ToLower(n.Value)
	}
	if n.Kind != yaml.ScalarNode {
		d.wrongType(n, v.Type(), path)
		return
	}

	var err error
	switch p := v.Addr().Interface().(type) {
	case Text:
		err = p.ParseText(value)
	case *netip.Addr:
		*p, err = parseAddr(n.Value)
	case *netip.Prefix:
		*p, err = parsePrefix(n.Value)
	}

	if err != nil {
		d.add(n.Line, path, err.Error())
	} else if !quoted && !d.FreeText {
		d.wrongType(n, v.Type(), path)
	}
}

func (d *Document) decodeScalar(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	switch v.Kind() {
	case reflect.String:
		if !isString(n) && (!d.FreeText || n.Kind != yaml.ScalarNode) {
			d.wrongType(n, v.Type(), path)
			return
		}

		v.SetString(n.Value)
		if d.FreeText {
			return
		}

		if enum := tag.Get("enum"); enum != "" {
			known := strings.Split(enum, "|")
			for _, k := range known {
				if k == n.Value {
					return
				}
			}
			d.add(
				n.Line, path,
				fmt.Sprintf("%s is not known; use one of: %s", Quote(n.Value), strings.Join(known, ", ")),
			)
		} else if form := tag.Get("pattern"); form != "" && !MatchesPattern(form, n.Value) {
			d.add(n.Line, path, fmt.Sprintf("%s does not fit; use %s", Quote(n.Value), tag.Get("hint")))
		} else if n.Value == "" || len(n.Value) > 512 || !IsPrintable(n.Value) {
			d.add(n.Line, path, "give 1 to 512 printable characters in one line, or remove the line")
		}
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			d.wrongType(n, v.Type(), path)
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil {
			d.wrongType(n, v.Type(), path)
			return
		}

		least, _ := strconv.ParseInt(tag.Get("min"), 10, 64)
		most, _ := strconv.ParseInt(tag.Get("max"), 10, 64)
		if i < least || i > most {
			d.add(n.Line, path, fmt.Sprintf("%d is out of bounds; use %d to %d", i, least, most))
			return
		}

		v.SetInt(i)
	default:
		d.add(n.Line, path, "no such kind of value: "+v.Type().String())
	}
}

// IsPrintable reports whether a text is one line without control characters.
func IsPrintable(s string) bool {
	for _, c := range s {
		if !strconv.IsPrint(c) {
			return false
		}
	}
	return true
}

// isString reports whether n is written as a string; what looks like a date counts as one.
func isString(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!str" || n.ShortTag() == "!!timestamp")
}

// patterns are the compiled expressions of the tags and checks of documents, by their text; a document of thousands of
// nodes has each of them as often.
var patterns sync.Map

// MatchesPattern reports whether a text fits a regular expression of the program, which is compiled once.
func MatchesPattern(pattern, text string) bool {
	compiled, ok := patterns.Load(pattern)
	if !ok {
		compiled, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return compiled.(*regexp.Regexp).MatchString(text)
}

// IsText reports whether values of a type are written as one text.
func IsText(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix]():
		return true
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[Text]())
}

// wrongType reports the kind of n, never its value: that could be a secret.
func (d *Document) wrongType(n *yaml.Node, t reflect.Type, path string) {
	have := map[string]string{
		"!!map":   "a map",
		"!!seq":   "a list",
		"!!int":   "a number",
		"!!float": "a number",
		"!!bool":  "true or false",
	}[n.ShortTag()]
	if have == "" {
		have = "text"
	}

	hint := ""
	switch {
	case expectedType(t) == "text" && n.Kind == yaml.ScalarNode:
		hint = "; put it in quotes"
	case t.Kind() == reflect.Slice:
		hint = "; write each item on its own line after '- '"
	case t.Kind() == reflect.Bool:
		hint = "; write true or false without quotes"
	case t.Kind() == reflect.Int:
		hint = "; write a whole number without quotes"
	case expectedType(t) == "a map":
		hint = "; write KEY: VALUE lines indented below it"
	}

	d.add(n.Line, path, fmt.Sprintf("this is %s, want %s%s", have, expectedType(t), hint))
}

func expectedType(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case IsText(t) || t.Kind() == reflect.String:
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

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf(
			"%s is not an address; write one such as 172.22.0.1, without a length", Quote(s),
		)
	}
	return a, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%s is not a CIDR; write network and length such as 172.22.0.0/24", Quote(s))
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s is an address in a network, not the network; write %s", Quote(s), p.Masked())
	}

	return p, nil
}

// Quote shows a value of the document in a message: one line, not long, no control characters.
func Quote(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s) + oddCharacters(s)
}

// oddCharacters names the first character of a value that is not ASCII by its code point: what looks like a digit, a
// hyphen or a letter may be none. "" if all are ASCII.
func oddCharacters(s string) string {
	for _, c := range s {
		if c > unicode.MaxASCII && c != '…' {
			return fmt.Sprintf(" (with %U, which is not ASCII)", c)
		}
	}
	return ""
}
