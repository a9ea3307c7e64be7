package yamldoc

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// color is a text of its own kind.
type color string

func (c *color) ParseText(s string) error {
	if s != "red" && s != "blue" {
		return errors.New(Quote(s) + " is not a color; use red or blue")
	}
	*c = color(s)
	return nil
}

type part struct {
	Pos
	Name string `yaml:"name" need:"the name that others use"`
	Size int    `yaml:"size" min:"1" max:"9"`
}

type whole struct {
	Parts  []part            `yaml:"parts"`
	Colors map[color]part    `yaml:"colors"`
	Addr   netip.Addr        `yaml:"addr" required:"true"`
	Loud   bool              `yaml:"loud"`
	Words  map[string]string `yaml:"words"`
}

func TestDecode(t *testing.T) {
	d, w := Document{File: "f", Kind: "a thing"}, whole{}
	require.True(t, d.Decode([]byte("addr: 10.0.0.1\nloud: true\nparts:\n- name: a\n  size: 3\ncolors:\n  red: {name: b}\n"), &w))
	require.Empty(t, d.Problems())
	assert.Equal(t, whole{
		Parts:  []part{{Pos: Pos{"f", 4, "parts[0]"}, Name: "a", Size: 3}},
		Colors: map[color]part{"red": {Pos: Pos{"f", 7, "colors.red"}, Name: "b"}},
		Addr:   netip.MustParseAddr("10.0.0.1"),
		Loud:   true,
	}, w)
	assert.EqualError(t, w.Parts[0].Errorf("%s is odd", w.Parts[0].Name), "f:4: parts[0]: a is odd")
	assert.True(t, d.IsGiven("parts[0].size"))
	assert.False(t, d.IsGiven("words"))
}

func TestEveryMistakeIsTold(t *testing.T) {
	const text = `parts:
- size: 10
- {name: 7, nam: x}
colors: {green: {name: a}, red: {name: b}, red: {name: c}}
loud: maybe
words: [a]
`
	d := Document{File: "f", Kind: "a thing"}
	require.True(t, d.Decode([]byte(text), &whole{}))
	assert.Equal(t, strings.Join([]string{
		`f:1: addr is missing; add it`,
		`f:2: parts[0]: name is missing; give the name that others use`,
		`f:2: parts[0].size: 10 is out of bounds; use 1 to 9`,
		`f:3: parts[1].nam: unknown key; did you mean name?`,
		`f:3: parts[1].name: this is a number, want text; put it in quotes`,
		`f:4: colors.green: "green" is not a color; use red or blue`,
		`f:4: colors.red: given twice, first in line 4; keep one`,
		`f:5: loud: this is text, want true or false; write true or false without quotes`,
		`f:6: words: this is a list, want a map; write KEY: VALUE lines indented below it`,
	}, "\n"), d.Problems().String())
}

func TestFreeText(t *testing.T) {
	const text = "addr: 10.0.0.1\nwords: {a: 3.8, b: '', c: \"two\\nlines\"}\n"
	d, w := Document{File: "f", FreeText: true}, whole{}
	require.True(t, d.Decode([]byte(text), &w))
	require.Empty(t, d.Problems())
	assert.Equal(t, map[string]string{"a": "3.8", "b": "", "c": "two\nlines"}, w.Words)

	strict := Document{File: "f"}
	require.True(t, strict.Decode([]byte(text), &w))
	assert.Len(t, strict.Problems(), 3)
}

func TestWhatIsNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"# nothing\n":                    "",
		"a: [\n":                         "f:1: this is not YAML: ",
		"\xff":                           "f:1: this is not UTF-8 text; save the file as UTF-8",
		strings.Repeat("#", MaxSize+1):   "f: the file has 1048577 bytes; a thing has at most 1048576 (1 MiB)",
		"addr: 10.0.0.1\n---\nloud: [\n": "f:4: this is not YAML: ",
	} {
		d := Document{File: "f", Kind: "a thing"}
		assert.False(t, d.Decode([]byte(text), &whole{}), want)
		assert.True(t, strings.HasPrefix(d.Problems().String(), want), "%s\n%s", want, d.Problems())
		assert.Equal(t, want == "", len(d.Problems()) == 0)
	}
	d := Document{File: "f", Kind: "a thing"}
	require.True(t, d.Decode([]byte("addr: 10.0.0.1\n---\nloud: true\n"), &whole{}))
	assert.Equal(t, "f:2: a second document begins here; a thing is one document, remove the '---'", d.Problems().String())
}

func TestProblemsErr(t *testing.T) {
	assert.NoError(t, Problems(nil).Err())
	assert.EqualError(t, Problems{
		{File: "f", Line: 3, Path: "a.b", Message: "m"},
		{File: "f", Message: "n"},
	}.Err(), "f:3: a.b: m\nf: n")
}
