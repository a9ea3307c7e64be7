package storage

import (
	"context"
	"errors"
	"fmt"

	"firstlight.dev/firstlight/assets/stick"
)

// NewKeyFile mints a key file for DATA while it is in use, and returns its line: no one else ever has it. A key file of
// before opens nothing from then on; whatever moment the power fails, one of the two opens DATA, or both.
func (k Preparer) NewKeyFile(ctx context.Context, record stick.StorageInfo) (string, error) {
	const cannot = "make a key file: "
	switch {
	case record.State != stick.StorageData:
		return "", errors.New(cannot + "there is no DATA in use; firstlightd status says why")
	case record.Seal == stick.SealNone:
		return "", errors.New(cannot + "DATA is not encrypted: an earlier version made it")
	case record.Seal == stick.SealKeyFile:
		return "", fmt.Errorf(cannot+"DATA is opened by the file %s of the medium %s already: keep a copy of that "+
			"file", stick.KeyFileName, stick.KeyMediumLabel)
	}

	v := volume{k: k, device: record.Device}
	h, err := v.header(ctx)
	if err != nil {
		return "", err
	}

	r := k.findKeys(ctx, 0)
	defer r.close()

	o, unsealed, err := v.find(ctx, h.Tokens, r)
	if err != nil {
		return "", fmt.Errorf(cannot+"nothing here opens DATA now: %w", errors.Join(err, unsealed))
	}

	key := mintKey()
	own := &keyring{means: means{KeyFile: true}, keyFile: key}
	if err := v.add(ctx, stick.SealKeyFile, o.key, own); err != nil {
		return "", err
	}

	for _, t := range h.Tokens {
		if t.Way != stick.SealKeyFile {
			continue
		}
		if err := v.removeToken(ctx, t); err != nil {
			return string(key), fmt.Errorf("remove the key file of before: %w", err)
		}
	}

	return string(key), nil
}
