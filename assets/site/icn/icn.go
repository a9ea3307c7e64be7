// Package icn turns the two inputs of an ICN installation, user_config.sh and nodes.json,
// into a site document. The shell file is parsed, never executed. What has no place in a
// site is told in one line each, with the reason and what to do.
package icn

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/assets/site"
)

// File is one input: its name in messages and its bytes.
type File struct {
	Name string
	Data []byte
}

// Note says what of an input was not carried over, or only with an assumption.
type Note struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // from 1; 0 if the whole file is meant
	Subject string `json:"subject"`
	Message string `json:"message"`
	// IsMissing says that nodes cannot be installed before the site is given what the message names.
	IsMissing bool `json:"isMissing,omitempty"`
}

// String is the note in one line: FILE:LINE: SUBJECT: MESSAGE.
func (n Note) String() string {
	at := n.File
	if n.Line > 0 {
		at = fmt.Sprintf("%s:%d", n.File, n.Line)
	}
	return fmt.Sprintf("%s: %s: %s", at, n.Subject, n.Message)
}

// Input is what an ICN installation was made of. Each part may be missing.
type Input struct {
	UserConfig  *File
	Nodes       *File
	Environment []string // of the caller, NAME=VALUE, by which ICN's scripts filled in what user_config.sh left open
}

// Import makes the site document of the inputs. The
// document holds the BMCs' passwords in clear and those of users as hashes. Load must
// still judge it: an address that was wrong in the input is as wrong in the output.
// An error means that an input could not be read at all.
func Import(in Input) ([]byte, []Note, error) {
	im := &importer{
		doc:         &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"},
		environment: parseEnvironment(in.Environment),
	}
	var servers value
	if in.Nodes != nil {
		var err error
		if servers, err = readJSON(in.Nodes); err != nil {
			return nil, nil, err
		}
		im.rack = surveyRack(servers)
	}

	if err := im.userConfig(in.UserConfig); err != nil {
		return nil, nil, err
	}

	if in.Nodes != nil {
		if err := im.nodesJSON(in.Nodes.Name, servers); err != nil {
			return nil, nil, err
		}
		im.noteReach(in.Nodes.Name)
	}

	var b bytes.Buffer
	b.WriteString("# The site of this rack, imported from ICN. It holds passwords of BMCs.\n")
	if len(im.doc.Content) > 0 {
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		if err := enc.Encode(im.doc); err != nil {
			return nil, nil, fmt.Errorf("encode site: %w", err)
		}
	}

	return b.Bytes(), im.notes, nil
}

type importer struct {
	doc         *yaml.Node
	notes       []Note
	environment map[string]string
	rack        rack
	outerRole   string       // of the network with the BMCs, as far as user_config.sh tells
	outer       netip.Prefix // its addresses
}

func (im *importer) addNote(file string, line int, subject, format string, args ...any) {
	im.notes = append(im.notes, Note{
		File:    file,
		Line:    line,
		Subject: subject,
		Message: oneLine(fmt.Sprintf(format, args...)),
	})
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// set puts a text at a path of keys, making the maps on the way.
func set(m *yaml.Node, value string, keys ...string) {
	n := &yaml.Node{}
	n.SetString(value)
	put(m, n, keys...)
}

func put(m, value *yaml.Node, keys ...string) {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == keys[0] {
			if len(keys) == 1 {
				m.Content[i+1] = value
			} else {
				put(m.Content[i+1], value, keys[1:]...)
			}
			return
		}
	}

	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: keys[0]}
	if len(keys) > 1 {
		inner := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		put(inner, value, keys[1:]...)
		value = inner
	}

	m.Content = append(m.Content, key, value)
}

// has reports whether there is something at a path of keys.
func has(m *yaml.Node, keys ...string) bool {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == keys[0] {
			return len(keys) == 1 || has(m.Content[i+1], keys[1:]...)
		}
	}
	return false
}

func list(values ...string) *yaml.Node {
	l := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for _, v := range values {
		n := &yaml.Node{}
		n.SetString(v)
		l.Content = append(l.Content, n)
	}
	return l
}

// networkOf is the /24 around an address, as good a guess as can be: ICN never said.
func networkOf(a netip.Addr) netip.Prefix {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// bareAddr reads an address that may carry a length.
func bareAddr(s string) (netip.Addr, netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr(), p.Masked(), true
	}

	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, netip.Prefix{}, false
	}

	return a, networkOf(a), true
}

// hash is the crypt hash of a password, salted by the name of what it opens so that the
// same input gives the same document.
func hash(password, salt string) (string, error) {
	return site.NewSecret(password).CryptHash("icn " + salt)
}

func sortNotes(notes []Note) {
	slices.SortStableFunc(notes, func(a, b Note) int { return a.Line - b.Line })
}
