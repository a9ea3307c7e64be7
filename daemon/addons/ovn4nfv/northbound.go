package ovn4nfv

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

// Tables of OVN's northbound database (ovn-nb(5)).
const (
	switchTable     = "Logical_Switch"
	switchPortTable = "Logical_Switch_Port"
	routerTable     = "Logical_Router"
	routerPortTable = "Logical_Router_Port"
)

// Keys of external_ids.
const (
	ownerKey  = "firstlight" // of all rows that are this add-on's
	ownerName = "ovn4nfv"
	switchKey = "logical_switch" // to which switch a row belongs; upstream's
)

// row is one of the northbound database. Columns are string, []string for a set, and map[string]string.
type row struct {
	table, name string
	columns     map[string]any
	parent      string // the name of the switch or router that a port is of

	id ovsdb.UUID // of one that is there
}

func (r row) key() string { return r.table + "/" + r.name }

// parentTables says whose ports are where.
var parentTables = map[string]string{switchPortTable: switchTable, routerPortTable: routerTable}

// podPort is an interface of a pod.
type podPort struct {
	Namespace, Pod, UID string
	Interface           Interface
}

func externalIDs(of string, more ...string) map[string]string {
	ids := map[string]string{ownerKey: ownerName}
	if of != "" {
		ids[switchKey] = of
	}
	for i := 0; i < len(more); i += 2 {
		ids[more[i]] = more[i+1]
	}
	return ids
}

// routerName is that of the router between the networks of a namespace. Those of two are not routed to each other.
func routerName(namespace string) string { return "router_" + namespace }

// render makes the rows of networks and pods. A pod's interface on a network that is not there has none.
func render(all map[string]Network, pods []podPort) map[string]row {
	wanted := map[string]row{}
	add := func(r row) { wanted[r.key()] = r }
	for _, n := range all {
		name := n.switchName()
		add(row{table: switchTable, name: name, columns: map[string]any{"external_ids": externalIDs(name)}})
		if n.Provider != nil {
			add(row{table: switchPortTable, name: "localnet_" + name, parent: name, columns: map[string]any{
				"type": "localnet", "addresses": []string{"unknown"},
				"options": map[string]string{"network_name": name}, "external_ids": externalIDs(name),
			}})
			continue
		}

		router, port := routerName(n.Namespace), "rtos-"+name
		add(row{table: routerTable, name: router, columns: map[string]any{"external_ids": externalIDs("")}})
		add(row{table: routerPortTable, name: port, parent: router, columns: map[string]any{
			"mac": macOf(n.Gateway), "networks": []string{netip.PrefixFrom(n.Gateway, n.Subnet.Bits()).String()},
			"external_ids": externalIDs(name),
		}})
		add(row{table: switchPortTable, name: "stor-" + name, parent: name, columns: map[string]any{
			"type": "router", "addresses": []string{"router"},
			"options": map[string]string{"router-port": port}, "external_ids": externalIDs(name),
		}})
	}

	for _, p := range pods {
		n, ok := all[p.Interface.Network]
		prefix, err := p.Interface.prefix()
		if !ok || err != nil {
			continue
		}
		add(row{
			table: switchPortTable, name: portName(p.Namespace, p.Pod, p.Interface.Interface), parent: n.switchName(),
			columns: map[string]any{
				"type":      "",
				"addresses": []string{p.Interface.MAC + " " + prefix.Addr().String()},
				// Not its address: network functions pass on what others sent.
				"port_security": []string{p.Interface.MAC},
				"options":       map[string]string{"iface-id-ver": p.UID},
				"external_ids":  externalIDs(n.switchName(), "namespace", p.Namespace, "pod", "true"),
			},
		})
	}
	return wanted
}

// readNorthbound returns this add-on's rows that are there.
func readNorthbound(results []ovsdb.Result) map[string]row {
	have := map[string]row{}
	parents := map[ovsdb.UUID]string{}
	for i, table := range northboundTables() {
		for _, r := range results[i].Rows {
			one := row{table: table, name: r.String("name"), id: r.UUID(), columns: map[string]any{}}
			for _, port := range r.UUIDs("ports") {
				parents[port] = one.name
			}
			if r.Map("external_ids")[ownerKey] != ownerName {
				continue
			}
			for column, kind := range columnsOf(table) {
				switch kind.(type) {
				case string:
					one.columns[column] = r.String(column)
				case []string:
					one.columns[column] = r.Strings(column)
				default:
					one.columns[column] = r.Map(column)
				}
			}
			have[one.key()] = one
		}
	}
	for key, one := range have {
		one.parent = parents[one.id]
		have[key] = one
	}
	return have
}

// northboundTables are what is read, those with ports first.
func northboundTables() []string {
	return []string{switchTable, routerTable, switchPortTable, routerPortTable}
}

// columnsOf are the columns that this add-on writes, by the kind of their values.
func columnsOf(table string) map[string]any {
	ids := map[string]string{}
	switch table {
	case switchPortTable:
		return map[string]any{
			"type": "", "addresses": []string{}, "port_security": []string{}, "options": map[string]string{}, "external_ids": ids,
		}
	case routerPortTable:
		return map[string]any{"mac": "", "networks": []string{}, "external_ids": ids}
	}
	return map[string]any{"external_ids": ids}
}

func selectNorthbound() (all []ovsdb.Operation) {
	for _, table := range northboundTables() {
		columns := []string{"_uuid", "name"}
		if table == switchTable || table == routerTable {
			columns = append(columns, "ports")
		}
		all = append(all, ovsdb.Select(table, nil, append(columns, slices.Sorted(maps.Keys(columnsOf(table)))...)...))
	}
	return all
}

// plan makes what is there what is wanted, in one transaction. Rows of the switches in kept stay as they are.
func plan(have, wanted map[string]row, kept map[string]bool) (operations []ovsdb.Operation) {
	for _, key := range slices.Sorted(maps.Keys(have)) {
		h := have[key]
		w, isWanted := wanted[key]
		isKept := kept[ownSwitch(h)]
		if h.table == routerTable { // as long as one of its networks is
			isKept = slices.ContainsFunc(slices.Collect(maps.Values(have)), func(r row) bool {
				return r.table == routerPortTable && r.parent == h.name && kept[ownSwitch(r)]
			})
		}
		if isWanted && w.parent == h.parent || !isWanted && isKept {
			continue
		}
		if table, isPort := parentTables[h.table]; isPort {
			operations = append(operations, ovsdb.Mutate(table, []ovsdb.Condition{ovsdb.Equal("name", h.parent)},
				ovsdb.Mutation{"ports", "delete", ovsdb.Set(h.id)}))
			continue
		}
		operations = append(operations, ovsdb.Delete(h.table, []ovsdb.Condition{ovsdb.Equal("_uuid", h.id)}))
	}

	// Switches and routers come before their ports: the name of their table sorts so.
	for i, key := range slices.Sorted(maps.Keys(wanted)) {
		w := wanted[key]
		h, isThere := have[key]
		if isThere && h.parent == w.parent {
			if changed := difference(h.columns, w.columns); len(changed) > 0 {
				operations = append(operations, ovsdb.Update(w.table, []ovsdb.Condition{ovsdb.Equal("_uuid", h.id)}, changed))
			}
			continue
		}

		columns := difference(nil, w.columns)
		columns["name"] = w.name
		id := "row" + strconv.Itoa(i)
		operations = append(operations, ovsdb.Insert(w.table, id, columns))
		if table, isPort := parentTables[w.table]; isPort {
			operations = append(operations, ovsdb.Mutate(table, []ovsdb.Condition{ovsdb.Equal("name", w.parent)},
				ovsdb.Mutation{"ports", "insert", ovsdb.Set(ovsdb.NamedUUID(id))}))
		}
	}
	return operations
}

// ownSwitch is the switch that a row belongs to; "" for a router.
func ownSwitch(r row) string {
	ids, _ := r.columns["external_ids"].(map[string]string)
	return ids[switchKey]
}

// difference returns the columns to write. What others added to a map, as northd does to options, stays.
func difference(have, wanted map[string]any) map[string]any {
	changed := map[string]any{}
	for column, value := range wanted {
		switch w := value.(type) {
		case string:
			if have[column] != w {
				changed[column] = w
			}
		case []string:
			h, _ := have[column].([]string)
			if !slices.Equal(slices.Sorted(slices.Values(h)), slices.Sorted(slices.Values(w))) {
				changed[column] = ovsdb.Set(w...)
			}
		case map[string]string:
			h, _ := have[column].(map[string]string)
			merged := maps.Clone(w)
			isSame := true
			for key, v := range w {
				isSame = isSame && h[key] == v
			}
			for key, v := range h {
				if _, isOurs := w[key]; !isOurs {
					merged[key] = v
				}
			}
			if !isSame {
				changed[column] = ovsdb.Map(merged)
			}
		default:
			panic(fmt.Sprintf("column %s is a %T", column, value))
		}
	}
	return changed
}
