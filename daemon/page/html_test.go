package page

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// document is a page as a browser reads it.
type document struct{ *html.Node }

func parse(t testing.TB, b []byte) document {
	root, err := html.Parse(bytes.NewReader(b))
	require.NoError(t, err)
	return document{root}
}

// all are the elements of the names, in order; without names, all elements.
func (d document) all(names ...string) (found []document) {
	for n := range d.Descendants() {
		if n.Type == html.ElementNode && (len(names) == 0 || slices.Contains(names, n.Data)) {
			found = append(found, document{n})
		}
	}
	return found
}

// id is the element with an id; nil if there is none.
func (d document) id(id string) *document {
	for _, e := range d.all() {
		if e.attr("id") == id {
			return &e
		}
	}
	return nil
}

// with are the elements that have a class.
func (d document) with(class string) (found []document) {
	for _, e := range d.all() {
		if slices.Contains(strings.Fields(e.attr("class")), class) {
			found = append(found, e)
		}
	}
	return found
}

func (d document) attr(name string) string {
	value, _ := d.lookup(name)
	return value
}

func (d document) lookup(name string) (string, bool) {
	for _, a := range d.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// text is what a person reads in it, with single spaces.
func (d document) text() string {
	var words []string
	for n := range d.Descendants() {
		if n.Type == html.TextNode {
			words = append(words, n.Data)
		}
	}
	return strings.Join(strings.Fields(strings.Join(words, "")), " ")
}

func texts(all []document) (list []string) {
	for _, d := range all {
		list = append(list, d.text())
	}
	return list
}
