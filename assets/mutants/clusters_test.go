package mutants

// Clusters are faults of the operator and of the installer.
func Clusters() []Mutant {
	return []Mutant{
		{
			Name:    "a running machine of the same name is removed from the cluster",
			File:    "daemon/clusters/installer/kubeadm.go",
			Old:     "if readyCondition(object) == corev1.ConditionTrue {",
			New:     "if readyCondition(object) == \"\" {",
			Package: installer,
		},
		{
			Name:    "a node of another authority counts as joined",
			File:    "daemon/clusters/installer/kubeadm.go",
			Old:     "if !shareAuthority(f.Authority, a.authorityDigest()) {",
			New:     "if f.Authority == \"\" {",
			Package: installer,
		},
		{
			Name:    "a control plane that was made once is made again",
			File:    "daemon/clusters/installer/kubeadm.go",
			Old:     "if r.Formed {",
			New:     "if r.Formed && ctx == nil {",
			Package: installer,
		},
		{
			Name:    "files of a node are renamed before they are on the disk",
			File:    "daemon/clusters/installer/files.go",
			Old:     "sync \"$1.new\"\nmv",
			New:     "mv",
			Package: installer,
		},
		{
			Name:    "a claim overwrites another one",
			File:    "daemon/clusters/bpa/operator/act.go",
			Old:     "client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})",
			New:     "client.MergeFrom(read)",
			Package: operator,
		},
		{
			Name:    "two installers run, because a Job's pods are not waited for",
			File:    "daemon/clusters/bpa/operator/act.go",
			Old:     "return len(pods) == 0, err",
			New:     "return true, err",
			Package: operator,
		},
	}
}
