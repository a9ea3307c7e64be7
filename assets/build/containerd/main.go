// Command containerd is containerd and ctr, linked once: the name it is called by chooses between them. Both are mostly
// the same libraries.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/containerd/containerd/cmd/containerd/builtins"
	"github.com/containerd/containerd/cmd/containerd/command"
	"github.com/containerd/containerd/cmd/ctr/app"
)

func main() {
	name, program := "containerd", command.App()
	if filepath.Base(os.Args[0]) == "ctr" {
		name, program = "ctr", app.New()
	}

	if err := program.Run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, err)
		os.Exit(1)
	}
}
