package commandline

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// ExitError is another program that ended with another code than 0, and has said why.
type ExitError struct {
	Program string
	Code    int
}

func (e *ExitError) Error() string { return fmt.Sprintf("%s: exit code %d", e.Program, e.Code) }

// Run executes one command line, and says in one line on standard error why it failed. Exit codes: 0 done, 1 refused or
// failed, 2 usage; a command that ran another program has that one's.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}

	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}

	fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
	var usage UsageError
	if errors.As(err, &usage) {
		return 2
	}

	return 1
}
