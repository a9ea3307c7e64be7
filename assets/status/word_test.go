package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestAWordIsOfWhatWasRead: of the host, of the inspection and of the disks, each in its part; and of nothing else.
func TestAWordIsOfWhatWasRead(t *testing.T) {
	newErase := func() Erase {
		return Erase{
			Node:      "node-1",
			Host:      "uid-1",
			Inspected: time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC),
			Disks:     []EraseDisk{{Name: "/dev/sda", Serial: "A", Bytes: 480e9, Holds: []string{"gpt"}}},
			Kept:      []EraseDisk{{Name: "/dev/sdb", WWN: "0x5b", Bytes: 960e9}},
		}
	}
	word := newErase().NewWord()
	for name, c := range map[string]struct {
		change  func(*Erase)
		differs int
	}{
		"nothing":              {func(*Erase) {}, -1},
		"begun":                {func(e *Erase) { e.Begun = true }, -1},
		"the same, elsewhere":  {func(e *Erase) { e.Inspected = e.Inspected.In(time.FixedZone("", 3600)) }, -1},
		"another host":         {func(e *Erase) { e.Host = "uid-2" }, 0},
		"another inspection":   {func(e *Erase) { e.Inspected = e.Inspected.Add(time.Second) }, 1},
		"another disk":         {func(e *Erase) { e.Disks[0].Serial = "B" }, 2},
		"other data":           {func(e *Erase) { e.Disks[0].Holds = []string{"gpt", "xfs"} }, 2},
		"another that is kept": {func(e *Erase) { e.Kept[0].WWN = "0x5c" }, 2},
		"the other one":        {func(e *Erase) { e.Disks, e.Kept = e.Kept, e.Disks }, 2},
		"one more":             {func(e *Erase) { e.Disks, e.Kept = append(e.Disks, e.Kept...), nil }, 2},
		"host and disk":        {func(e *Erase) { e.Host, e.Disks[0].Serial = "uid-2", "B" }, 0},
	} {
		e := newErase()
		c.change(&e)
		differs, isWord := CompareWords(word, e.NewWord())
		assert.Equal(t, []any{c.differs, true}, []any{differs, isWord}, name)
	}

	differs, isWord := CompareWords(Replace{Host: "uid-1", New: "a"}.NewWord(), Replace{Host: "uid-1", New: "b"}.NewWord())
	assert.Equal(t, []any{1, true}, []any{differs, isWord})
	for _, typed := range []string{"", "node-1", word[:9], word + "-abcd", word[:13], Replace{}.NewWord()} {
		_, isWord = CompareWords(typed, word)
		assert.False(t, isWord, typed)
	}
}
