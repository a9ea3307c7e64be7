// Command greeter is all that is in the container image of a test.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Println("greetings from", os.Getenv("NODE")) }
