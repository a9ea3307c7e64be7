// Command greeter is all that is in the container images of tests. It greets. With the argument "serve", or under another
// name, it stays until it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	fmt.Println("greetings from", os.Getenv("NODE"))
	if slices.Contains(os.Args[1:], "serve") || filepath.Base(os.Args[0]) != "greeter" {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
	}
}
