package status

import "slices"

// ClusterRef is how people name a cluster: by its name, and as namespace/name if another one has that name.
func ClusterRef(all []Cluster, c Cluster) string {
	same := 0
	for _, other := range all {
		if other.Name == c.Name {
			same++
		}
	}
	if same > 1 {
		return c.Namespace + "/" + c.Name
	}
	return c.Name
}

// FindCluster is the one cluster that a reference names; false if there is none, or several have that name.
func FindCluster(all []Cluster, ref string) (Cluster, bool) {
	i := slices.IndexFunc(all, func(c Cluster) bool {
		return ClusterRef(all, c) == ref || c.Namespace+"/"+c.Name == ref
	})
	if i < 0 {
		return Cluster{}, false
	}
	return all[i], true
}
