package features

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Expression is a condition on one value (NFD, "MatchExpression").
type Expression struct {
	Op    string   `json:"op"`
	Value []string `json:"value"`
	Type  string   `json:"type"` // of numbers: "", or version
}

// counts are how many values an operator has, -1: one or more.
var counts = map[string]int{
	"": 0, "Exists": 0, "DoesNotExist": 0, "IsTrue": 0, "IsFalse": 0,
	"In": -1, "NotIn": -1, "InRegexp": -1,
	"Gt": 1, "Ge": 1, "Lt": 1, "Le": 1, "GtLt": 2, "GeLe": 2,
}

// holds reports whether a value is as it should, or whether there is one. What is not there fits no other operator.
func (e Expression) holds(value string, isThere bool) (bool, error) {
	want, known := counts[e.Op]
	switch {
	case !known:
		return false, fmt.Errorf("op %q is none", e.Op)
	case want >= 0 && len(e.Value) != want:
		return false, fmt.Errorf("op %q has %d values, not %d", e.Op, want, len(e.Value))
	case want < 0 && len(e.Value) == 0:
		return false, fmt.Errorf("op %q has no value", e.Op)
	}

	switch e.Op {
	case "":
		return true, nil
	case "Exists":
		return isThere, nil
	case "DoesNotExist":
		return !isThere, nil
	}
	if !isThere {
		return false, nil
	}

	switch e.Op {
	case "IsTrue":
		return value == "true", nil
	case "IsFalse":
		return value == "false", nil
	case "In":
		return slices.Contains(e.Value, value), nil
	case "NotIn":
		return !slices.Contains(e.Value, value), nil
	case "InRegexp":
		return matchesOne(e.Value, value)
	}
	return e.compare(value)
}

func matchesOne(patterns []string, value string) (bool, error) {
	for _, p := range patterns {
		form, err := regexp.Compile(p)
		if err != nil {
			return false, fmt.Errorf("%q is no regular expression: %w", p, err)
		}
		if form.MatchString(value) {
			return true, nil
		}
	}
	return false, nil
}

// compare compares numbers, or versions.
func (e Expression) compare(value string) (bool, error) {
	is, err := e.parse(value)
	if err != nil {
		return false, err
	}
	var order []int // of the value and each bound
	for _, bound := range e.Value {
		other, err := e.parse(bound)
		if err != nil {
			return false, err
		}
		order = append(order, slices.Compare(is, other))
	}

	switch e.Op {
	case "Gt":
		return order[0] > 0, nil
	case "Ge":
		return order[0] >= 0, nil
	case "Lt":
		return order[0] < 0, nil
	case "Le":
		return order[0] <= 0, nil
	case "GtLt":
		return order[0] > 0 && order[1] < 0, nil
	}
	return order[0] >= 0 && order[1] <= 0, nil // GeLe
}

// version is up to three numbers at the beginning of a text.
var version = regexp.MustCompile(`^v?(\d+)(?:\.(\d+))?(?:\.(\d+))?`)

func (e Expression) parse(text string) ([]int, error) {
	switch e.Type {
	case "":
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is no number", text)
		}
		return []int{n}, nil
	case "version":
		parts := version.FindStringSubmatch(text)
		if parts == nil {
			return nil, fmt.Errorf("%q is no version", text)
		}
		numbers := make([]int, 3)
		for i, p := range parts[1:] {
			numbers[i], _ = strconv.Atoi(p) // "" is 0
		}
		return numbers, nil
	}
	return nil, fmt.Errorf("type %q is not version", e.Type)
}
