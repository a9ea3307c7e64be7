package apply

import (
	"regexp"
	"strings"
)

var (
	agentToken = regexp.MustCompile(`(agent_token=)[^&\s"')]+`) // in the address of a request that Ironic made of an agent
	bootToken  = regexp.MustCompile(`(/b/)[A-Za-z0-9_-]{43}\b`) // in the address of a request that an agent made
	unreached  = regexp.MustCompile(`HTTPS?ConnectionPool\(host='([^']*)', port=(\d+)\): Max retries exceeded with url: (\S*) \(Caused by \w+\((?:<connection>, )?['"]?(?:<connection>: )?(.*?)['"]?\)\)`)
	objects    = regexp.MustCompile(`<[A-Za-z_][\w.]* object at 0x[0-9a-f]+>`) // what Python calls a connection
)

// RedactIronicError is a text of Ironic's, its agent's or the operator's as people may read it: without the tokens of
// agents, and without the names and addresses of Python's objects, which are others in every try.
func RedactIronicError(s string) string {
	s = agentToken.ReplaceAllString(s, "${1}[redacted]")
	s = bootToken.ReplaceAllString(s, "${1}[redacted]")
	s = objects.ReplaceAllString(s, "<connection>")
	return strings.TrimSpace(unreached.ReplaceAllString(s, "$1:$2$3 cannot be reached: $4"))
}
