package stick

import "io/fs"

// StateName is the directory of DATA that holds what the directories of StateDirs contain.
const StateName = "state"

// StateDir is a directory of the root whose content lives on DATA.
type StateDir struct {
	Name string // below StateName
	Path string // in the root
	Mode fs.FileMode
}

// StateDirs lists all that outlives a boot beside DataDir itself. What is not here is gone at power off, by intent.
func StateDirs() []StateDir {
	return []StateDir{
		{"journal", "/var/log/journal", 0o2755},
		{"pods", "/var/log/pods", 0o755}, // what pods print; would fill the memory otherwise
		{"containerd", "/var/lib/containerd", 0o700},
		{"kubelet", "/var/lib/kubelet", 0o750},
		{"etcd", "/var/lib/etcd", 0o700},
		{"kubernetes", "/etc/kubernetes", 0o755},
		{"ironic", "/var/lib/ironic", 0o700}, // its database holds the BMCs' passwords
		{"kud", "/opt/kud", 0o755},
	}
}
