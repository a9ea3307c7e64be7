package ovn

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

// settings are what ovn-controller reads in external_ids of Open_vSwitch (ovn-controller(8)). As long as it is unknown where
// the central part is, it is where it was.
func settings(node string, address netip.Addr, datapath Datapath, central netip.Addr) map[string]string {
	ids := map[string]string{
		"system-id":                node,
		"hostname":                 node,
		"ovn-encap-type":           "geneve",
		"ovn-encap-ip":             address.String(),
		"ovn-bridge":               IntegrationBridge,
		"ovn-bridge-datapath-type": string(datapath),
	}
	if central.IsValid() {
		ids["ovn-remote"] = "ssl:" + netip.AddrPortFrom(central, SouthboundPort).String()
	}
	return ids
}

// ensureSettings writes the settings of ovn-controller, and where ovs-vswitchd switches itself, the bridge that it sends
// tunnels by.
func (u *Underlay) ensureSettings(ctx context.Context) error {
	c, err := ovsdb.Dial(ctx, Socket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()

	results, err := c.Transact(ctx, Database,
		ovsdb.Select(Database, nil, "_uuid", "external_ids"),
		ovsdb.Select("Bridge", []ovsdb.Condition{ovsdb.Equal("name", underlayBridge)}, "_uuid"))
	if err != nil {
		return err
	}
	wanted := settings(u.Node, u.Address, u.datapath, u.central)
	if len(results[0].Rows) == 0 { // a new database
		_, err := c.Transact(ctx, Database, ovsdb.Insert(Database, "", map[string]any{"external_ids": ovsdb.Map(wanted)}))
		if err != nil {
			return err
		}
		return errors.New("wait for the database to be set up")
	}

	operations := setExternalIDs(results[0].Rows[0].Map("external_ids"), wanted)
	if u.datapath == Userspace && len(results[1].Rows) == 0 {
		operations = append(operations, addUnderlayBridge()...)
	}
	if len(operations) == 0 {
		return nil
	}
	_, err = c.Transact(ctx, Database, append(operations, Reconfigure())...)
	return err
}

// setExternalIDs changes those of Open_vSwitch that are not as wanted, and leaves others'.
func setExternalIDs(have, wanted map[string]string) []ovsdb.Operation {
	changed := map[string]string{}
	for key, value := range wanted {
		if have[key] != value {
			changed[key] = value
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return []ovsdb.Operation{ovsdb.Mutate(Database, nil,
		ovsdb.Mutation{"external_ids", "delete", ovsdb.Set(slices.Sorted(maps.Keys(changed))...)},
		ovsdb.Mutation{"external_ids", "insert", ovsdb.Map(changed)})}
}

// Reconfigure tells ovs-vswitchd that something changed (column next_cfg of ovs-vswitchd.conf.db(5)).
func Reconfigure() ovsdb.Operation {
	return ovsdb.Mutate(Database, nil, ovsdb.Mutation{"next_cfg", "+=", 1})
}

// AddBridge adds a bridge with ports.
func AddBridge(name string, row map[string]any, ports ...string) []ovsdb.Operation {
	all := []any{ovsdb.NamedUUID("local")}
	operations := []ovsdb.Operation{
		ovsdb.Insert("Interface", "locallink", map[string]any{"name": name, "type": "internal"}),
		ovsdb.Insert("Port", "local", map[string]any{"name": name, "interfaces": ovsdb.NamedUUID("locallink")}),
	}
	for i, p := range ports {
		n := strconv.Itoa(i)
		operations = append(operations,
			ovsdb.Insert("Interface", "link"+n, map[string]any{"name": p}),
			ovsdb.Insert("Port", "port"+n, map[string]any{"name": p, "interfaces": ovsdb.NamedUUID("link" + n)}))
		all = append(all, ovsdb.NamedUUID("port"+n))
	}

	bridge := map[string]any{"name": name, "ports": ovsdb.Set(all...)}
	maps.Copy(bridge, row)
	return append(operations,
		ovsdb.Insert("Bridge", "bridge", bridge),
		ovsdb.Mutate(Database, nil, ovsdb.Mutation{"bridges", "insert", ovsdb.Set(ovsdb.NamedUUID("bridge"))}))
}

func addUnderlayBridge() []ovsdb.Operation {
	return AddBridge(underlayBridge, map[string]any{
		"datapath_type": string(Userspace),
		// Its own, so that the kernel takes none of what is sent to it for its own.
		"other_config": ovsdb.Map(map[string]string{"hwaddr": underlayMAC.String()}),
	}, namespaceLink)
}
