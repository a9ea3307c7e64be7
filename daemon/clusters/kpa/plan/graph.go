// Package plan decides what a Component does next: after which others, on which attempt, and how its clusters add
// up to one phase. All of it is pure; package operator acts.
package plan

import (
	"slices"
)

// Node is a Component as its dependencies see it.
type Node struct {
	Name      string
	DependsOn []string
}

// FindCycles returns for each Component that waits for itself one way round, which begins and ends with its name.
// Names that no node has lead nowhere.
func FindCycles(nodes []Node) map[string][]string {
	after := map[string][]string{}
	for _, n := range nodes {
		after[n.Name] = n.DependsOn
	}

	cycles := map[string][]string{}
	for _, n := range nodes {
		if way := findWay(after, n.Name); way != nil {
			cycles[n.Name] = way
		}
	}

	return cycles
}

// findWay is the shortest way along dependencies from a Component back to itself; nil if there is none.
func findWay(after map[string][]string, name string) []string {
	from, queue := map[string]string{}, []string{name}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, next := range after[at] {
			if next == name {
				return walkBack(from, at, name)
			}
			if _, seen := from[next]; !seen {
				from[next] = at
				queue = append(queue, next)
			}
		}
	}

	return nil
}

func walkBack(from map[string]string, at, name string) []string {
	way := []string{name}
	for ; at != name; at = from[at] {
		way = append(way, at)
	}
	way = append(way, name)
	slices.Reverse(way)
	return way
}

// ListDependents names the Components that depend on one, sorted: they are removed before it.
func ListDependents(name string, nodes []Node) []string {
	var all []string
	for _, n := range nodes {
		if n.Name != name && slices.Contains(n.DependsOn, name) {
			all = append(all, n.Name)
		}
	}
	slices.Sort(all)
	return all
}
