package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"firstlight.dev/firstlight/assets/stick"
)

// NewKeyFile mints a key file for DATA while it is in use, and hands its line to show: no one else ever has it. Once
// show has returned, a key file of before opens nothing; an error of show takes the new one back. So whatever moment
// the power fails, one of the two opens DATA, or both, and its owner has that one.
func (k Preparer) NewKeyFile(ctx context.Context, record stick.StorageInfo, show func(line string) error) error {
	const cannot = "make a key file: "
	switch {
	case record.State != stick.StorageData:
		return errors.New(cannot + "there is no DATA in use; firstlightd status says why")
	case record.Seal == stick.SealNone:
		return errors.New(cannot + "DATA is not encrypted: an earlier version made it")
	case record.Seal == stick.SealKeyFile:
		return fmt.Errorf(cannot+"DATA is opened by the file %s of the medium %s already: keep a copy of that "+
			"file", stick.KeyFileName, stick.KeyMediumLabel)
	}

	v := volume{k: k, device: record.Device}
	h, err := v.header(ctx)
	if err != nil {
		return err
	}

	r := k.findKeys(ctx, 0)
	defer r.close()

	o, unsealed, err := v.find(ctx, h.Tokens, r)
	if err != nil {
		return fmt.Errorf(cannot+"nothing here opens DATA now: %w", errors.Join(err, unsealed))
	}

	key := mintKey()
	own := &keyring{means: means{KeyFile: true}, keyFile: key}
	if err := v.add(ctx, stick.SealKeyFile, o.key, own); err != nil {
		return err
	}
	if err := show(string(key)); err != nil {
		return errors.Join(err, v.takeBackKey(ctx, h))
	}

	for _, t := range h.Tokens {
		if t.Way != stick.SealKeyFile {
			continue
		}
		if err := v.removeToken(ctx, t); err != nil {
			return fmt.Errorf("remove the key file of before: %w", err)
		}
	}

	return nil
}

// takeBackKey removes the key file that is in the header and was not before.
func (v volume) takeBackKey(ctx context.Context, before header) error {
	now, err := v.header(ctx)
	if err != nil {
		return err
	}

	for _, t := range now.Tokens {
		if t.Way == stick.SealKeyFile && !slices.ContainsFunc(before.Tokens, func(b token) bool { return b.ID == t.ID }) {
			return v.removeToken(ctx, t)
		}
	}
	return nil
}
