// Command firstlight-init is PID 1 of the initramfs; package initrd says what it does.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/initrd"
)

func main() {
	if len(os.Args) == 3 && os.Args[0] == initrd.WatchArgument {
		if err := initrd.Watch(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, initrd.WatchArgument, err)
			os.Exit(1)
		}
	}

	log.SetOutput(io.Discard) // u-root logs every step of switch_root
	err := initrd.Boot()
	// Only a failure comes back here. PID 1 must not end: the kernel would panic.
	for {
		initrd.ShowStuck(err)
		time.Sleep(30 * time.Second)
	}
}
