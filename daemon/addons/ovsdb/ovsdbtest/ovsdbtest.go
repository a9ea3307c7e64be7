// Package ovsdbtest is an OVSDB server for tests: tables without a schema, and of the operations those that this project
// uses. Rows that nothing refers to are deleted where a table is named for that; indexes are names.
package ovsdbtest

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Server is a database.
type Server struct {
	Address string // in the form of ovsdb.Dial

	lock     sync.Mutex
	tables   map[string]map[string]map[string]any // table, UUID, column
	owned    map[string]string                    // tables whose rows live by a reference: to the column's table/column
	next     int
	refuse   string // what transactions end with, "" for none
	requests int
}

// New starts a server. Rows of a table that owned names live as long as a column TABLE/COLUMN refers to them.
func New(t *testing.T, owned map[string]string) *Server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	s := &Server{Address: "unix:" + path, tables: map[string]map[string]map[string]any{}, owned: owned}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// Refuse has transactions end with an error, until it is called with "".
func (s *Server) Refuse(fault string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.refuse = fault
}

// Changes counts the transactions that changed something.
func (s *Server) Changes() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.requests
}

// Clear empties the database.
func (s *Server) Clear() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.tables = map[string]map[string]map[string]any{}
}

// Column returns a column of a table's rows, as JSON by name.
func (s *Server) Column(table, column string) map[string]string {
	s.lock.Lock()
	defer s.lock.Unlock()
	all := map[string]string{}
	for _, row := range s.tables[table] {
		text, _ := json.Marshal(row[column])
		all[fmt.Sprint(row["name"])] = string(text)
	}
	return all
}

func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var request struct {
			ID     any
			Params []any
		}
		if in.Decode(&request) != nil {
			return
		}
		results := s.transact(request.Params[1:])
		if out.Encode(map[string]any{"id": request.ID, "error": nil, "result": results}) != nil {
			return
		}
	}
}

func (s *Server) transact(operations []any) (results []any) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.refuse != "" {
		return []any{map[string]any{"error": s.refuse, "details": "by the test"}}
	}

	named := map[string]string{}
	isChange := false
	for _, o := range operations {
		one := o.(map[string]any)
		table := one["table"].(string)
		if s.tables[table] == nil {
			s.tables[table] = map[string]map[string]any{}
		}
		isChange = isChange || one["op"] != "select"
		results = append(results, s.do(one, table, named))
	}
	if isChange {
		s.requests++
	}
	s.collect()
	return results
}

func (s *Server) do(o map[string]any, table string, named map[string]string) any {
	if o["op"] == "insert" {
		s.next++
		id := fmt.Sprintf("uuid-%d", s.next)
		if name, ok := o["uuid-name"].(string); ok {
			named[name] = id
		}
		row := resolve(o["row"], named).(map[string]any)
		row["_uuid"] = []any{"uuid", id}
		s.tables[table][id] = row
		return map[string]any{"uuid": row["_uuid"]}
	}

	rows := []any{}
	for id, row := range s.tables[table] {
		if !fits(row, o["where"].([]any)) {
			continue
		}
		rows = append(rows, row)
		switch o["op"] {
		case "delete":
			delete(s.tables[table], id)
		case "update":
			for column, value := range resolve(o["row"], named).(map[string]any) {
				row[column] = value
			}
		case "mutate":
			for _, m := range o["mutations"].([]any) {
				mutate(row, resolve(m, named).([]any))
			}
		}
	}
	if o["op"] == "select" {
		return map[string]any{"rows": rows}
	}
	return map[string]any{"count": len(rows)}
}

// resolve replaces names of rows that the transaction inserted.
func resolve(value any, named map[string]string) any {
	switch v := value.(type) {
	case []any:
		if len(v) == 2 && v[0] == "named-uuid" {
			return []any{"uuid", named[v[1].(string)]}
		}
		all := make([]any, len(v))
		for i := range v {
			all[i] = resolve(v[i], named)
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for key := range v {
			all[key] = resolve(v[key], named)
		}
		return all
	}
	return value
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func fits(row map[string]any, where []any) bool {
	for _, w := range where {
		c := w.([]any)
		column, value := row[c[0].(string)], c[2]
		switch c[1] {
		case "==":
			if !equal(column, value) {
				return false
			}
		case "includes":
			for _, e := range elements(value) {
				if !slices.ContainsFunc(elements(column), func(have any) bool { return equal(have, e) }) {
					return false
				}
			}
		}
	}
	return true
}

// elements are those of a set or a map.
func elements(value any) []any {
	if pair, ok := value.([]any); ok && len(pair) == 2 && (pair[0] == "set" || pair[0] == "map") {
		return pair[1].([]any)
	}
	if value == nil {
		return nil
	}
	return []any{value}
}

func mutate(row map[string]any, m []any) {
	column := m[0].(string)
	have, change := elements(row[column]), elements(m[2])
	kind := "set"
	if pair, ok := m[2].([]any); ok && pair[0] == "map" {
		kind = "map"
	}
	if pair, ok := row[column].([]any); ok && len(pair) == 2 && pair[0] == "map" {
		kind = "map"
	}
	switch m[1] {
	case "insert":
		have = append(have, change...)
	case "delete":
		have = slices.DeleteFunc(have, func(h any) bool {
			return slices.ContainsFunc(change, func(c any) bool {
				pair, isPair := h.([]any)
				return equal(h, c) || kind == "map" && isPair && equal(pair[0], c)
			})
		})
	case "+=":
		n, _ := row[column].(float64)
		row[column] = n + m[2].(float64)
		return
	}
	row[column] = []any{kind, have}
}

// collect deletes rows that nothing refers to, and then those that only these referred to (RFC 7047, section 3.2,
// "isRoot").
func (s *Server) collect() {
	for isCollected := true; isCollected; {
		isCollected = false
		for table, by := range s.owned {
			owner, column := filepath.Dir(by), filepath.Base(by)
			for id := range s.tables[table] {
				if !s.isUsed(owner, column, id) {
					delete(s.tables[table], id)
					isCollected = true
				}
			}
		}
	}
}

func (s *Server) isUsed(owner, column, id string) bool {
	for _, row := range s.tables[owner] {
		if slices.ContainsFunc(elements(row[column]), func(e any) bool { return equal(e, []any{"uuid", id}) }) {
			return true
		}
	}
	return false
}
