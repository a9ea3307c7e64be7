// Command etcd is the appliance's key-value store: the server of go.etcd.io/etcd, unchanged. Its flags
// are upstream's; it answers readiness by sd_notify and on its health port.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
