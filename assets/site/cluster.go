package site

import (
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// checkClusters checks that a name and a server are used by one cluster, and there by each
// role, once, and that there are servers enough.
func (r *reader) checkClusters(s *Site) {
	r.checkIgnitionNodes(s)
	nodes := map[Name]bool{}
	owner := map[MAC]Name{}
	for _, n := range s.Nodes {
		nodes[n.Name] = true
		for _, m := range n.macs() {
			owner[m] = n.Name
		}
	}

	names := map[Name]string{}
	used := map[string]string{} // server -> path of the cluster that has it
	asked := 0
	for i := range s.Clusters {
		c, path := &s.Clusters[i], fmt.Sprintf("clusters[%d]", i)
		if first, ok := names[c.Name]; ok && c.Name != "" {
			r.Report(
				path+".name", "name %s is already that of %s; each must be given once", yamldoc.Quote(string(c.Name)),
				first,
			)
		}

		names[c.Name] = path
		asked += r.checkCluster(c, path, nodes, owner, used, s.Discover.withDefaults(s))
		listed := map[string]bool{}
		for j, a := range c.AddOns {
			if listed[a] && a != "" {
				r.Report(fmt.Sprintf("%s.addOns[%d]", path, j), "%s is given twice; keep one", yamldoc.Quote(a))
			}
			listed[a] = true
		}
	}

	if promised := s.CountNodes(); promised > 0 && asked > promised {
		if s.Discover != nil {
			r.Report("clusters", "the clusters need %d nodes, this file lists %d and lets %d be discovered; "+
				"raise discover.count, add nodes, or lower the counts", asked, len(s.Nodes), s.Discover.Count)
			return
		}
		r.Report(
			"clusters", "the clusters need %d nodes, this file lists %d; add nodes or lower the counts", asked, promised,
		)
	}
}

// macs are all MACs by which the node is known.
func (n Node) macs() []MAC {
	all := append([]MAC{n.BootMAC}, n.MACs...)
	for _, l := range n.Links {
		all = append(all, l.nics()...)
	}
	return all
}

// checkCluster checks one cluster and returns how many servers it needs.
func (r *reader) checkCluster(
	c *Cluster,
	path string,
	nodes map[Name]bool,
	owner map[MAC]Name,
	used map[string]string,
	discovered *Discover,
) int {
	both := r.checkInventory(c, path, owner)
	if c.By == ByClusterAPI {
		discovered = nil // its machines are made of nodes that the site describes
	}
	asked := 0
	role := func(key string, members []NodeSelector) {
		inRole := map[string]string{}
		for i, m := range members {
			at := fmt.Sprintf("%s.%s[%d]", path, key, i)
			r.checkSelector(m, at, nodes, discovered)
			server := m.serverKey(owner)
			if server == "" {
				if key != "workers" || !both[i] {
					asked += max(m.Count, 1)
				}
				continue
			}

			if other, ok := inRole[server]; ok {
				r.Report(at, "this is the same server as %s; name each once", other)
			}

			inRole[server] = at
			if other, ok := used[server]; ok && other != path {
				r.Report(at, "this server is already claimed by %s; a server belongs to one cluster", other)
			} else if !ok {
				asked++
			}

			used[server] = path
		}
	}
	role("controlPlane", c.controlPlane())
	role("workers", c.Workers)
	return asked
}

// checkInventory checks that each name of a cluster stands for one server. It returns which
// entries of workers only repeat the name of a control-plane node: that has both roles.
func (r *reader) checkInventory(c *Cluster, path string, owner map[MAC]Name) map[int]bool {
	type entry struct {
		NodeSelector
		path string
	}
	seen, both := map[Name]entry{}, map[int]bool{}
	add := func(key string, members []NodeSelector, stem string) {
		all, from := expandSelectors(members, stem)
		for i, m := range all {
			at := fmt.Sprintf("%s.%s[%d]", path, key, from[i])
			first, ok := seen[m.Name]
			if !ok {
				seen[m.Name] = entry{m, at}
				continue
			}

			if key == "workers" && strings.HasPrefix(first.path, path+".controlPlane") {
				if m == (NodeSelector{Name: m.Name, Count: 1}) {
					both[from[i]] = true
					continue
				}
				if s := m.serverKey(owner); s != "" && s == first.serverKey(owner) {
					continue
				}
			}

			if first.path != at {
				r.Report(
					at+".name", "name %s is already that of %s; use another", yamldoc.Quote(string(m.Name)),
					first.path,
				)
			}
		}
	}
	add("controlPlane", c.controlPlane(), "master")
	add("workers", c.Workers, "worker")
	return both
}

// serverKey identifies the server that a member pins, empty if it pins none.
func (m NodeSelector) serverKey(owner map[MAC]Name) string {
	if m.Node != "" {
		return "node " + string(m.Node)
	}
	if name, ok := owner[m.MAC]; ok && m.MAC != "" {
		return "node " + string(name)
	}
	return string(m.MAC)
}

// checkSelector checks one entry of a role. It may name a node that is still to be discovered.
func (r *reader) checkSelector(m NodeSelector, path string, nodes map[Name]bool, discovered *Discover) {
	if m.Node != "" && m.MAC != "" {
		r.Report(path+".mac", "node is given as well; keep one of the two")
	}
	if m.Node != "" && !nodes[m.Node] && !discovered.mayName(m.Node) && !r.IsFull() {
		var known []string
		for n := range nodes {
			known = append(known, string(n))
		}
		r.Report(
			path+".node", "no node is called %s; use the name of one in nodes%s", yamldoc.Quote(string(m.Node)),
			suggestNearest(string(m.Node), known),
		)
	}
	if m.Count > 1 && (m.Node != "" || m.MAC != "") {
		r.Report(path+".count", "one server is named, it cannot be %d; remove count, node or mac", m.Count)
	}
}

// suggestNearest suggests the known name that is nearest to name, if one is near.
func suggestNearest(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}

	slices.Sort(known)
	if s := yamldoc.Suggest(name, known); strings.HasPrefix(s, "did you mean") {
		return "; " + s
	}

	return ""
}
