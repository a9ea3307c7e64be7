package verify

import (
	"context"
	"crypto/sha256"
	"fmt"

	"firstlight.dev/firstlight/assets/stick"
)

// checkSignature checks that the file is signed by a key that is known, and that the signature says what slot a starts.
func (c *check) checkSignature(ctx context.Context) (string, error) {
	says, key, err := c.Keys.CheckFile(ctx, c.report.Image)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		c.addFinding("", -1, "%v", err)
		return "not by a key that is known", nil
	}

	config, _ := c.file(stick.SlotA.Boot(), "/"+stick.SlotConfigName)
	if want := fmt.Sprintf("%x", sha256.Sum256(config)); says.Slot != want {
		c.addFinding(stick.SlotA.Boot(), -1, "%s is not the one that the signature names", stick.SlotConfigName)
	}
	return "by the key " + key.ID(), nil
}
