package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

// TestDataIsLostByTheWordThatWasPrinted: nothing is confirmed by accident, what was asked is written down, and a refusal
// is one line.
func TestDataIsLostByTheWordThatWasPrinted(t *testing.T) {
	var changes []api.Change
	ready, ended := make(chan struct{}), make(chan error)
	s := &api.Server{
		Socket: filepath.Join(t.TempDir(), "s"),
		Ready:  func() { close(ready) },
		Log:    slog.New(slog.DiscardHandler),
		Audit:  func(c api.Change) { changes = append(changes, c) },
		Erase: func(_ context.Context, node string, disks []string, word string) (status.Erase, error) {
			e := status.Erase{Node: node, Host: "uid-1", Inspected: time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC), Begun: word != ""}
			e.Disks = []status.EraseDisk{{Name: "/dev/sda", Serial: "A", Bytes: 480e9, Holds: []string{"gpt", "ext4"}, Installed: "node-1 of site rack-7"}}
			e.Kept = []status.EraseDisk{{Name: "/dev/sdb", WWN: "0x5b", Bytes: 960e9}}
			if len(disks) > 0 {
				e.Disks, e.Kept = e.Kept, e.Disks
			}
			e.Word = e.NewWord()
			if word != "" && word != e.Word {
				return status.Erase{}, errors.New(node + " is not erased: read it again")
			}
			return e, nil
		},
		Replace: func(node, word string) (status.Replace, error) {
			r := status.Replace{Node: node, Host: "uid-1", New: "the BMC ipmi://10.0.0.2, not ipmi://10.0.0.1", Begun: word != ""}
			r.Word = r.NewWord()
			if word != "" && word != r.Word {
				return status.Replace{}, errors.New(node + " is not replaced: read it again")
			}
			return r, nil
		},
	}
	s.CancelErase = func(node string) (status.Erase, error) {
		if node != "node-1" {
			return status.Erase{}, errors.New("no disks of " + node + " are to be erased: there is nothing to cancel")
		}
		return status.Erase{Node: node, Cancelled: true}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	<-ready
	run := func(cmd *cobra.Command, args ...string) (string, error) {
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append([]string{"--socket", s.Socket}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	erase := func(args ...string) (string, error) { return run(newEraseCommand(), args...) }

	out, err := erase("node-1")
	require.NoError(t, err)
	head, rest, _ := strings.Cut(out, "--confirm ")
	word := strings.TrimSpace(rest)
	assert.Equal(t, `node-1 is BareMetalHost uid-1, inspected on 2026-11-29 12:00:01 UTC.
would be erased  /dev/sda 480 GB serialNumber A, holds gpt, ext4, installed as node-1 of site rack-7
is left alone    /dev/sdb 960 GB wwn 0x5b
Nothing was erased. What is on the disk is lost for good with: firstlightd erase node-1 --disk A `,
		head, "the disks that were shown, whichever is the root device then")
	assert.Regexp(t, "^[a-z2-7]{4}-[a-z2-7]{4}-[a-z2-7]{4}$", word)
	assert.Empty(t, changes)

	out, err = erase("node-1", "--disk", "0x5b")
	require.NoError(t, err)
	assert.Contains(t, out, "with: firstlightd erase node-1 --disk 0x5b --confirm "+word[:10])
	assert.NotContains(t, out, word, "it is about another disk")

	out, err = erase("node-1", "--confirm", word)
	require.NoError(t, err)
	assert.Contains(t, out, "is erased now    /dev/sda")
	assert.Contains(t, out, "firstlightd why node-1 says how that stands.\n")

	_, err = erase("node-1", "--confirm", "node-1")
	require.EqualError(t, err, "node-1 is not erased: read it again")
	require.Len(t, changes, 2)
	assert.Equal(t, "erase", changes[0].Verb)
	assert.Equal(t, 200, changes[0].Code)
	assert.Equal(t, 422, changes[1].Code)
	assert.Equal(t, "node-1 is not erased: read it again", changes[1].Reason)

	out, err = erase("node-1", "--cancel")
	require.NoError(t, err)
	assert.Equal(t, "The erasure of node-1 is cancelled, and nothing was written. It is made available again; "+
		"firstlightd why node-1 says how that stands.\n", out)
	_, err = erase("node-2", "--cancel")
	require.EqualError(t, err, "no disks of node-2 are to be erased: there is nothing to cancel")
	require.Len(t, changes, 4)
	assert.Equal(t, "cancel-erase", changes[2].Verb)
	for _, more := range [][]string{{"--confirm", word}, {"--disk", "A"}} {
		_, err = erase(append([]string{"node-1", "--cancel"}, more...)...)
		require.Error(t, err)
	}
	require.Len(t, changes, 4)

	assert.Equal(t, `'WD 1 $(x) '\''s'`, shellWord("WD 1 $(x) 's"))
	_, err = erase()
	require.Error(t, err)
	_, err = erase("node-1", "node-2")
	require.Error(t, err)
	out, err = erase("node-1", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"begun": false`)
	assert.Contains(t, out, `"word": "`+word+`"`)
	require.Len(t, changes, 4)

	out, err = run(newReplaceCommand(), "node-1")
	require.NoError(t, err)
	head, rest, _ = strings.Cut(out, "--confirm ")
	assert.Equal(t, `node-1 would have the BMC ipmi://10.0.0.2, not ipmi://10.0.0.1, and BareMetalHost uid-1 would go.
Nothing was replaced. That is done with: firstlightd replace node-1 `, head)
	require.Len(t, changes, 4)
	out, err = run(newReplaceCommand(), "node-1", "--confirm", strings.TrimSpace(rest))
	require.NoError(t, err)
	assert.Equal(t, "node-1 is replaced: it has the BMC ipmi://10.0.0.2, not ipmi://10.0.0.1. firstlightd why node-1 says how "+
		"that stands.\n", out)
	_, err = run(newReplaceCommand(), "node-1", "--confirm", "node-1")
	require.EqualError(t, err, "node-1 is not replaced: read it again")
	require.Len(t, changes, 6)
	assert.Equal(t, "replace", changes[4].Verb)
	assert.Equal(t, 422, changes[5].Code)
}
