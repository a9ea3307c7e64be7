package storage

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
)

// sealPCRs are the measurements that a sealed key depends on: the Secure Boot policy of the firmware. Kernel, initramfs
// and root are measured into others, and change with each update (docs/decisions/0049).
var sealPCRs = []uint{7}

// keyMediumWait is how long a medium with the key file is waited for where nothing else opens DATA: USB takes some
// seconds, hubs and old disks more.
const keyMediumWait = 40 * time.Second

// keyring is what this machine has to open a volume by. close ends it.
type keyring struct {
	means
	tpm     transport.TPMCloser
	keyFile []byte
}

func (r *keyring) close() {
	if r.tpm != nil {
		_ = r.tpm.Close()
	}
}

// findKeys looks for a TPM and for a medium with a key file, for the latter as long as wait.
func (k Preparer) findKeys(ctx context.Context, wait time.Duration) *keyring {
	r := &keyring{}
	r.tpm, r.NoTPM = k.openTPM(ctx)
	r.TPM = r.NoTPM == nil
	k.findKeyFile(ctx, r, wait)
	return r
}

// findKeyFile looks for the medium alone. One that cannot be read is as good as none, and is named in the log.
func (k Preparer) findKeyFile(ctx context.Context, r *keyring, wait time.Duration) {
	key, err := k.readKeyFile(ctx, wait)
	if err != nil {
		k.Log.Warn("key medium", "label", stick.KeyMediumLabel, "err", err)
	}
	r.keyFile, r.KeyFile = key, len(key) > 0
}

// mintKey makes a key of 256 random bits, as text: what is a file to one may be typed by another.
func mintKey() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails (crypto/rand)
	return []byte(base64.RawStdEncoding.EncodeToString(b))
}

// add makes one more way to open v, which open opens. It is tried before it counts, and taken back if it does not open
// v: else each boot would leave one more, until the header has no room.
func (v volume) add(ctx context.Context, way stick.Seal, open []byte, r *keyring) error {
	t, key, err := r.newToken(way)
	if err != nil {
		return err
	}

	slot, err := v.addKey(ctx, open, key, way)
	if err != nil {
		return err
	}

	t.Slots = []string{slot}
	err = v.addToken(ctx, t)
	if err == nil {
		err = v.check(ctx, t, r)
	}
	if err == nil {
		return nil
	}

	if kept := v.takeBack(ctx, slot); kept != nil {
		err = fmt.Errorf("%w; it is not taken back: %w", err, kept)
	}
	return err
}

// takeBack removes a slot, and its token if it has one.
func (v volume) takeBack(ctx context.Context, slot string) error {
	h, err := v.header(ctx)
	if err != nil {
		return err
	}

	for _, t := range h.Tokens {
		if t.slot() == slot {
			return v.removeToken(ctx, t)
		}
	}
	return v.removeSlot(ctx, slot)
}

// newToken is a token without a slot, and the key that it gives.
func (r *keyring) newToken(way stick.Seal) (token, []byte, error) {
	t, key := token{Way: way}, mintKey()
	var err error
	switch way {
	case stick.SealTPM:
		t.Sealed, err = tpm.Seal(r.tpm, key, sealPCRs)
	case stick.SealBeside:
		t.Key = key
	case stick.SealKeyFile:
		key = r.keyFile
	}
	return t, key, err
}

// dropDeafTPM tries the TPM: one that seals nothing, as for the lack of a bank of PCRs, or does not unseal it, is none.
func (r *keyring) dropDeafTPM() error {
	if !r.TPM {
		return nil
	}

	t, _, err := r.newToken(stick.SealTPM)
	if err == nil {
		_, err = r.key(t)
	}
	if err != nil {
		r.TPM, r.NoTPM = false, err
	}
	return err
}

// key is what a token gives here.
func (r *keyring) key(t token) ([]byte, error) {
	switch {
	case t.Way == stick.SealTPM && r.TPM:
		return tpm.Unseal(r.tpm, t.Sealed)
	case t.Way == stick.SealKeyFile && r.KeyFile:
		return r.keyFile, nil
	case t.Way == stick.SealBeside:
		return t.Key, nil
	}
	return nil, errNoKey
}

// errNoKey says that what a token needs is not here.
var errNoKey = errors.New("what it is opened by is not here")

// check opens v by a token, as the next boot will.
func (v volume) check(ctx context.Context, t token, r *keyring) error {
	key, err := r.key(t)
	if err != nil {
		return err
	}
	return v.try(ctx, key, t.slot())
}

// opening is how a volume was opened.
type opening struct {
	token token
	key   []byte
}

// find returns the first token that opens v here. What is wrong with the TPM's is unsealed; another error than
// errNoKey is of the medium.
func (v volume) find(ctx context.Context, tokens []token, r *keyring) (o opening, unsealed, err error) {
	err = errNoKey
	for _, way := range []stick.Seal{stick.SealTPM, stick.SealKeyFile, stick.SealBeside} {
		for _, t := range tokens {
			if t.Way != way {
				continue
			}

			key, keyErr := r.key(t)
			if way == stick.SealTPM && keyErr != nil && r.TPM {
				unsealed = keyErr
			}
			if keyErr != nil {
				continue
			}

			tryErr := v.try(ctx, key, t.slot())
			if tryErr == nil {
				return opening{token: t, key: key}, unsealed, nil
			}
			if !errors.Is(tryErr, errWrongKey) {
				err = tryErr
			}
		}
	}
	return opening{}, unsealed, err
}

// lockedError says that nothing here opens DATA; its text is for people.
type lockedError string

func (e lockedError) Error() string { return string(e) }

// unlock finds what opens v, opens it by open, and has the header say what will open it at the next boot.
func (v volume) unlock(ctx context.Context, open func(key []byte) error) (seal sealInfo, err error) {
	h, err := v.header(ctx)
	if err != nil {
		return seal, err
	}

	r := v.k.findKeys(ctx, 0)
	defer r.close()

	o, unsealed, err := v.find(ctx, h.Tokens, r)
	if errors.Is(err, errNoKey) && !r.KeyFile && len(h.Tokens) > 0 {
		v.k.Log.Warn("DATA is locked; a medium with the key is waited for", "label", stick.KeyMediumLabel,
			"file", stick.KeyFileName, "seconds", keyMediumWait.Seconds())
		v.k.findKeyFile(ctx, r, keyMediumWait)
		o, unsealed, err = v.find(ctx, h.Tokens, r)
	}
	if errors.Is(err, errNoKey) {
		return seal, lockedError(describeLocked(h.Tokens, r.means, unsealed))
	}
	if err != nil {
		return seal, err
	}
	if err := open(o.key); err != nil { // now: what opens it may be removed next
		return seal, err
	}

	seal.Opened = o.token.Way
	v.k.Log.Info("DATA is unlocked", "by", o.token.Way)
	resealErr := v.reseal(ctx, h, o, r)
	if h, err = v.header(ctx); err != nil {
		return seal, err
	}

	// What was added to the TPM here opens here.
	if resealErr == nil && r.TPM {
		o.token.Way = stick.SealTPM
	}
	seal.Way = sealOf(h.Tokens, o.token)
	seal.KeyFile = seal.Way == stick.SealTPM && slices.ContainsFunc(h.Tokens, func(t token) bool {
		return t.Way == stick.SealKeyFile
	})
	if resealErr != nil {
		v.k.Log.Error("DATA not sealed again", "err", resealErr)
		seal.Note = fmt.Sprintf("What opens DATA was not changed as it should be: %v.", resealErr)
	}

	return seal, nil
}

// sealInfo is what the record says of a volume.
type sealInfo struct {
	Way     stick.Seal // of the next boot
	Opened  stick.Seal // now
	KeyFile bool
	Note    string
}

// reseal changes what opens v at the next boot, as planResealing has it. An error leaves all that opened it before.
func (v volume) reseal(ctx context.Context, h header, o opening, r *keyring) error {
	var failed error
	m := r.means
	for _, way := range planResealing(h.Tokens, o.token, m).Add {
		err := v.add(ctx, way, o.key, r)
		switch {
		case err == nil:
			v.k.Log.Info("DATA is sealed", "by", way)
		case way == stick.SealTPM: // one that does not seal is none, and is not in a key file's way
			m.TPM, failed = false, fmt.Errorf("add %s: %w", way, err)
		default:
			return errors.Join(failed, fmt.Errorf("add %s: %w", way, err))
		}
	}

	for _, t := range slices.Concat(planResealing(h.Tokens, o.token, m).Remove, h.Stale) {
		if err := v.removeToken(ctx, t); err != nil {
			return fmt.Errorf("remove %s: %w", t.Way, err)
		}
		v.k.Log.Info("a way to open DATA is removed", "way", t.Way, "token", t.ID)
	}

	return failed
}
