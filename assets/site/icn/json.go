package icn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// value is a JSON value that knows its line.
type value struct {
	line  int
	text  string // of a string, number or boolean
	word  bool   // text is meant
	keys  []string
	items []value // of an array, or those of keys
}

func (v value) get(key string) value {
	for i, k := range v.keys {
		if k == key {
			return v.items[i]
		}
	}
	return value{line: v.line}
}

// readJSON reads one JSON document of at most 1 MiB and 32 levels.
func readJSON(f *File) (value, error) {
	if len(f.Data) > maxSize {
		return value{}, fmt.Errorf(
			"read %s: it has %d bytes, a nodes.json has at most %d", f.Name, len(f.Data), maxSize,
		)
	}

	data := bytes.TrimPrefix(f.Data, []byte("\ufeff"))
	p := &jsonReader{dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	p.dec.UseNumber()
	v, err := p.readValue(0)
	if err == nil {
		if _, end := p.dec.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("something follows the document; remove it")
		}
	}

	if err != nil {
		return value{}, fmt.Errorf("read %s:%d: not JSON: %s", f.Name, p.currentLine(), oneLine(err.Error()))
	}

	return v, nil
}

type jsonReader struct {
	dec  *json.Decoder
	data []byte
	seen int // bytes counted into line
	line int
}

func (p *jsonReader) currentLine() int {
	now := min(int(p.dec.InputOffset()), len(p.data))
	p.line += bytes.Count(p.data[p.seen:now], []byte("\n"))
	p.seen = now
	return p.line
}

func (p *jsonReader) readValue(depth int) (value, error) {
	token, err := p.dec.Token()
	if err != nil {
		return value{}, err
	}

	v := value{line: p.currentLine()}
	switch t := token.(type) {
	case string:
		v.text, v.word = t, true
	case json.Number:
		v.text, v.word = t.String(), true
	case bool:
		v.text, v.word = strconv.FormatBool(t), true
	case json.Delim:
		if depth == 32 {
			return v, errors.New("nested too deeply")
		}

		for p.dec.More() {
			if t == '{' {
				key, err := p.dec.Token()
				if err != nil {
					return v, err
				}

				name, _ := key.(string)
				v.keys = append(v.keys, name)
			}

			item, err := p.readValue(depth + 1)
			if err != nil {
				return v, err
			}

			v.items = append(v.items, item)
		}

		_, err = p.dec.Token()
		return v, err
	}

	return v, nil
}
