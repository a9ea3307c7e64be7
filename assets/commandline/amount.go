package commandline

import "fmt"

// Amount is a number with what it counts, a noun in the singular: 1 node, 2 nodes.
func Amount(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
