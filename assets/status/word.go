package status

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// wordPart is how many letters and digits of a word stand for one fact: 20 bits of its digest.
const wordPart = 4

// newWord is the word by which a person confirms what was shown: a part for each fact, such as `k3fa-x2mq`. A part is
// another one once its fact is, but for one time in a million.
func newWord(facts ...string) string {
	var parts []string
	for _, fact := range facts {
		sum := sha256.Sum256([]byte(fact))
		parts = append(parts, strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:wordPart]))
	}
	return strings.Join(parts, "-")
}

// CompareWords returns the first fact, counted from 0, that a word which was typed says otherwise than the word of now;
// -1: none. It is no word of that kind if isWord is false.
func CompareWords(typed, now string) (differs int, isWord bool) {
	were, are := strings.Split(strings.ToLower(typed), "-"), strings.Split(now, "-")
	if len(were) != len(are) {
		return 0, false
	}

	differs = -1
	for i, part := range were {
		if len(part) != wordPart {
			return 0, false
		}
		if differs < 0 && part != are[i] {
			differs = i
		}
	}
	return differs, true
}
