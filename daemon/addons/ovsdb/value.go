package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Operation is one of a transaction (RFC 7047, 5.2).
type Operation map[string]any

// Condition is [COLUMN, FUNCTION, VALUE] (RFC 7047, 5.1).
type Condition [3]any

// Equal is the condition that a column has a value.
func Equal(column string, value any) Condition { return Condition{column, "==", value} }

// Includes is the condition that a column of a set or map has these elements.
func Includes(column string, value any) Condition { return Condition{column, "includes", value} }

func conditions(where []Condition) []Condition {
	if where == nil {
		return []Condition{} // null is refused
	}
	return where
}

// Select reads rows; no columns are all.
func Select(table string, where []Condition, columns ...string) Operation {
	o := Operation{"op": "select", "table": table, "where": conditions(where)}
	if len(columns) > 0 {
		o["columns"] = columns
	}
	return o
}

// Insert adds a row; other operations of the transaction name it by name, if it has one.
func Insert(table, name string, row map[string]any) Operation {
	o := Operation{"op": "insert", "table": table, "row": row}
	if name != "" {
		o["uuid-name"] = name
	}
	return o
}

// Update sets columns of rows.
func Update(table string, where []Condition, row map[string]any) Operation {
	return Operation{"op": "update", "table": table, "where": conditions(where), "row": row}
}

// Mutation is [COLUMN, MUTATOR, VALUE] (RFC 7047, 5.1).
type Mutation [3]any

// Mutate changes sets, maps and numbers of rows.
func Mutate(table string, where []Condition, mutations ...Mutation) Operation {
	return Operation{"op": "mutate", "table": table, "where": conditions(where), "mutations": mutations}
}

// Delete deletes rows.
func Delete(table string, where []Condition) Operation {
	return Operation{"op": "delete", "table": table, "where": conditions(where)}
}

// UUID names a row. It is written as ["uuid", TEXT].
type UUID string

// MarshalJSON is of json.Marshaler.
func (u UUID) MarshalJSON() ([]byte, error) { return json.Marshal([]string{"uuid", string(u)}) }

// UnmarshalJSON is of json.Unmarshaler.
func (u *UUID) UnmarshalJSON(text []byte) error {
	var pair []string
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] != "uuid" {
		return fmt.Errorf("%s is no UUID", text)
	}
	*u = UUID(pair[1])
	return nil
}

// NamedUUID is a row that the same transaction inserts.
func NamedUUID(name string) any { return []string{"named-uuid", name} }

// Set is a set of values.
func Set[V any](values ...V) any {
	if values == nil {
		values = []V{}
	}
	return []any{"set", values}
}

// Map is a map of strings.
func Map(m map[string]string) any {
	pairs := [][2]string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{k, m[k]})
	}
	return []any{"map", pairs}
}

// Row is a row as it was read: columns by their name.
type Row map[string]json.RawMessage

// UUID is the row's own.
func (r Row) UUID() UUID {
	all := r.UUIDs("_uuid")
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// Strings are the elements of a column of strings, be it a set or not.
func (r Row) Strings(column string) (all []string) {
	for _, text := range elements(r[column]) {
		var s string
		if json.Unmarshal(text, &s) == nil {
			all = append(all, s)
		}
	}
	return all
}

// String is the first of Strings; "" without one.
func (r Row) String(column string) string {
	if all := r.Strings(column); len(all) > 0 {
		return all[0]
	}
	return ""
}

// UUIDs are the elements of a column of references.
func (r Row) UUIDs(column string) (all []UUID) {
	for _, text := range elements(r[column]) {
		var u UUID
		if json.Unmarshal(text, &u) == nil {
			all = append(all, u)
		}
	}
	return all
}

// Map is a column that is a map of strings.
func (r Row) Map(column string) map[string]string {
	m := map[string]string{}
	var outer []json.RawMessage
	var kind string
	var pairs [][]string
	if json.Unmarshal(r[column], &outer) != nil || len(outer) != 2 ||
		json.Unmarshal(outer[0], &kind) != nil || kind != "map" || json.Unmarshal(outer[1], &pairs) != nil {
		return m
	}
	for _, p := range pairs {
		if len(p) == 2 {
			m[p[0]] = p[1]
		}
	}
	return m
}

// elements are those of a set, which may be written as its one element alone (RFC 7047, 5.1).
func elements(text json.RawMessage) []json.RawMessage {
	if len(text) == 0 {
		return nil
	}
	var outer []json.RawMessage
	var kind string
	if json.Unmarshal(text, &outer) == nil && len(outer) == 2 && json.Unmarshal(outer[0], &kind) == nil && kind == "set" {
		var all []json.RawMessage
		if json.Unmarshal(outer[1], &all) == nil {
			return all
		}
	}
	return []json.RawMessage{text}
}
