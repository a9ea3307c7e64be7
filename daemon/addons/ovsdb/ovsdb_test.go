package ovsdb

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve answers one connection: each answer follows the request that it waits for.
func serve(t *testing.T, answers ...string) (address string, requests chan string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	requests = make(chan string, len(answers)+1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := json.NewDecoder(conn)
		for _, answer := range answers {
			var request json.RawMessage
			if in.Decode(&request) != nil {
				return
			}
			requests <- string(request)
			if _, err := conn.Write([]byte(answer)); err != nil {
				return
			}
		}
		var last json.RawMessage
		_ = in.Decode(&last)
	}()
	return "unix:" + path, requests
}

func TestATransactionIsOneRequest(t *testing.T) {
	address, requests := serve(t,
		`{"method":"echo","params":["alive?"],"id":"echo"}`,
		`{"id":1,"error":null,"result":[{"rows":[{"_uuid":["uuid","u"],"name":"a"}]},{"uuid":["uuid","v"]},{"count":1}]}`)
	results, err := Transact(t.Context(), address, nil, "Open_vSwitch",
		Select("Bridge", nil, "_uuid", "name"),
		Insert("Port", "port", map[string]any{"name": "p", "interfaces": NamedUUID("i"), "tag": Set(7)}),
		Mutate("Bridge", []Condition{Equal("name", "a")}, Mutation{"ports", "insert", Set(NamedUUID("port"))}))
	require.NoError(t, err)
	assert.Equal(t, UUID("u"), results[0].Rows[0].UUID())
	assert.Equal(t, UUID("v"), results[1].UUID)
	assert.Equal(t, 1, results[2].Count)
	assert.JSONEq(t, `{"id":1,"method":"transact","params":["Open_vSwitch",
		{"op":"select","table":"Bridge","where":[],"columns":["_uuid","name"]},
		{"op":"insert","table":"Port","uuid-name":"port","row":{"name":"p","interfaces":["named-uuid","i"],"tag":["set",[7]]}},
		{"op":"mutate","table":"Bridge","where":[["name","==","a"]],
		 "mutations":[["ports","insert",["set",[["named-uuid","port"]]]]]}]}`, <-requests)
	assert.JSONEq(t, `{"id":"echo","error":null,"result":["alive?"]}`, <-requests)
}

func TestAnErrorOfAnyOperationIsTheTransactions(t *testing.T) {
	for answer, want := range map[string]string{
		`{"id":1,"error":null,"result":[{"count":1},{"error":"constraint violation","details":"name"}]}`:  "database X: constraint violation: name",
		`{"id":1,"error":null,"result":[{"error":"referential integrity violation","details":"d"},null]}`: "database X: referential integrity violation: d",
		`{"id":1,"error":"unknown database","result":null}`:                                               `database X: transact: the server refuses it: "unknown database"`,
		`{"id":1,"error":null,"result":[]}`:                                                               "database X: 0 results of 1 operations",
	} {
		address, _ := serve(t, answer)
		_, err := Transact(t.Context(), address, nil, "X", Delete("T", nil))
		assert.EqualError(t, err, want)
	}
}

func TestValuesOfRows(t *testing.T) {
	var row Row
	require.NoError(t, json.Unmarshal([]byte(`{"one":"a","many":["set",["a","b"]],"none":["set",[]],
		"port":["uuid","u"],"ports":["set",[["uuid","u"],["uuid","v"]]],"ids":["map",[["k","v"],["l","w"]]]}`), &row))
	assert.Equal(t, "a", row.String("one"))
	assert.Equal(t, []string{"a", "b"}, row.Strings("many"))
	assert.Empty(t, row.Strings("none"))
	assert.Empty(t, row.String("missing"))
	assert.Equal(t, []UUID{"u"}, row.UUIDs("port"))
	assert.Equal(t, []UUID{"u", "v"}, row.UUIDs("ports"))
	assert.Equal(t, map[string]string{"k": "v", "l": "w"}, row.Map("ids"))
	assert.Empty(t, row.Map("one"))

	text, err := json.Marshal([]any{UUID("u"), Set[string](), Map(map[string]string{"b": "2", "a": "1"})})
	require.NoError(t, err)
	assert.Equal(t, `[["uuid","u"],["set",[]],["map",[["a","1"],["b","2"]]]]`, string(text))
}
