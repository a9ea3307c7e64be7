package verify

import (
	"context"

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

	is, err := c.image.SlotDigest()
	if err != nil {
		c.addFinding(stick.SlotA.Boot(), -1, "%v", err)
	} else if says.Slot != is {
		c.addFinding(stick.SlotA.Boot(), -1, "it is not the one that the signature names")
	}
	return "by the key " + key.ID(), nil
}
