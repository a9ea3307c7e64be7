// Command etcd is the appliance's key-value store: the server of go.etcd.io/etcd, unchanged but for
// its place in the queue of the disk. Its flags are upstream's; it answers readiness by sd_notify and
// on its health port.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if err := raiseIOPriority(); err != nil {
		fmt.Fprintln(os.Stderr, "etcd's writes wait behind those of others:", err)
	}
	etcdmain.Main(os.Args)
}
