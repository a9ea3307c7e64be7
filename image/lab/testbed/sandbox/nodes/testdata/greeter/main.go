// Command greeter is all that is in the container images of tests. It greets, and with the argument "serve" it stays until
// it is told to end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	fmt.Println("greetings from", os.Getenv("NODE"))
	if slices.Contains(os.Args[1:], "serve") {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
	}
}
