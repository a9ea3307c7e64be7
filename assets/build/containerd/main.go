// Command containerd is containerd with the plugins that an appliance uses.
package main

import (
	"fmt"
	"os"

	"github.com/containerd/containerd/cmd/containerd/command"

	_ "github.com/containerd/containerd/cmd/containerd/builtins"
)

func main() {
	if err := command.App().Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "containerd: %s\n", err)
		os.Exit(1)
	}
}
