package ovn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

// CheckNode says what a node lacks to connect pods.
func CheckNode(ctx context.Context) error {
	results, err := ovsdb.Transact(ctx, Socket(), nil, Database,
		ovsdb.Select("Bridge", []ovsdb.Condition{ovsdb.Equal("name", IntegrationBridge)}, "_uuid"))
	if err != nil {
		return err
	}
	if len(results[0].Rows) == 0 {
		return fmt.Errorf("ovn-controller has not made %s yet", IntegrationBridge)
	}

	// ovn-appctl connection-status
	status, err := control(ctx, controlSocket(Run, controllerName), "connection-status")
	if err != nil {
		return err
	}
	if status != "connected" {
		return fmt.Errorf("ovn-controller and the southbound database: %s", status)
	}
	return nil
}

// Check says whether the central part serves.
func (c Central) Check(ctx context.Context) error {
	for _, d := range []struct{ short, name, table string }{
		{"nb", Northbound, "NB_Global"},
		{"sb", Southbound, "SB_Global"},
	} {
		_, err := ovsdb.Transact(ctx, "unix:"+c.socket(d.short), nil, d.name, ovsdb.Select(d.table, nil, "_uuid"))
		if err != nil {
			return err
		}
	}
	return nil
}

// control asks a program by its control socket.
func control(ctx context.Context, socket, command string, args ...any) (string, error) {
	c, err := ovsdb.Dial(ctx, "unix:"+socket, nil)
	if err != nil {
		return "", err
	}
	defer c.Close()

	text, err := c.Call(ctx, command, args...)
	if err != nil {
		return "", err
	}
	var answer string
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", fmt.Errorf("%s: read the answer: %w", command, err)
	}
	return strings.TrimSpace(answer), nil
}
