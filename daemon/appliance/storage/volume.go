package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
)

// mapperName is the name of the opened volume, and mapped its device.
const (
	mapperName = "firstlight-data"
	mapped     = "/dev/mapper/" + mapperName
)

// payloadOffset is where the encrypted data of a volume begin, in bytes: cryptsetup's default, and said to it.
const payloadOffset = 16 << 20

// volume is a LUKS2 volume on a partition or in a file. Its header says by tokens what opens it: each names one key
// slot. cryptsetup writes one of the header's two copies after the other, with checksums, so that each of these
// commands is done or not done after a power cut.
type volume struct {
	k      Preparer
	device string
}

// token is one way to open a volume (LUKS2 On-Disk Format, "Tokens Object").
type token struct {
	ID     int        `json:"-"`
	Way    stick.Seal `json:"-"`
	Type   string     `json:"type"`
	Slots  []string   `json:"keyslots"`
	Sealed tpm.Sealed `json:"firstlight-sealed,omitzero"` // of SealTPM
	Key    []byte     `json:"firstlight-key,omitempty"`   // of SealBeside, in clear
}

// tokenTypes are the names of ways in a header.
var tokenTypes = map[stick.Seal]string{
	stick.SealTPM:     "firstlight-tpm",
	stick.SealKeyFile: "firstlight-key-file",
	stick.SealBeside:  "firstlight-beside",
}

// wayOf is the way that a type of token stands for; "": it is none of ours.
func wayOf(name string) stick.Seal {
	for way, n := range tokenTypes {
		if n == name {
			return way
		}
	}
	return ""
}

// slot is the key slot that a token names.
func (t token) slot() string {
	if len(t.Slots) != 1 {
		return ""
	}
	return t.Slots[0]
}

// header is what a volume has of slots and of our tokens, in order. A token whose slot was removed is stale: it opens
// nothing.
type header struct {
	Slots  []string
	Tokens []token
	Stale  []token
}

func parseHeader(dump []byte) (header, error) {
	var raw struct {
		Slots  map[string]json.RawMessage `json:"keyslots"`
		Tokens map[string]json.RawMessage `json:"tokens"`
	}
	err := json.Unmarshal(dump, &raw)
	if err != nil {
		return header{}, fmt.Errorf("read header of %s: %w", stick.PartitionData, err)
	}

	var h header
	for slot := range raw.Slots {
		h.Slots = append(h.Slots, slot)
	}
	slices.Sort(h.Slots)

	for id, text := range raw.Tokens {
		var t token
		if err := json.Unmarshal(text, &t); err != nil {
			continue // of somebody else
		}
		t.ID, err = strconv.Atoi(id)
		t.Way = wayOf(t.Type)
		switch {
		case err != nil || t.Way == "":
			continue
		case slices.Contains(h.Slots, t.slot()):
			h.Tokens = append(h.Tokens, t)
		default:
			h.Stale = append(h.Stale, t)
		}
	}
	slices.SortFunc(h.Tokens, func(a, b token) int { return a.ID - b.ID })

	return h, nil
}

func (v volume) header(ctx context.Context) (header, error) {
	dump, err := v.k.output(ctx, nil, "cryptsetup", "luksDump", "--dump-json-metadata", v.device)
	if err != nil {
		return header{}, err
	}
	return parseHeader(dump)
}

// derivation is how a key is stretched. Keys of 256 random bits need none; a key file is what its owner wrote. 64 MiB
// are there on any machine that the stick may be moved to.
func derivation(way stick.Seal) []string {
	if way == stick.SealKeyFile {
		return []string{"--pbkdf=argon2id", "--pbkdf-memory=65536", "--pbkdf-parallel=1", "--pbkdf-force-iterations=4"}
	}
	return []string{"--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"}
}

// format makes the volume, with its first key in slot 0 and no token. uuid is that of the appliance (volumeUUID).
func (v volume) format(ctx context.Context, uuid string, key []byte, way stick.Seal) error {
	_, err := v.k.output(ctx, [][]byte{key}, "cryptsetup", append([]string{
		"luksFormat", "--batch-mode", "--type=luks2", "--uuid=" + uuid, "--label=" + stick.PartitionData,
		"--cipher=aes-xts-plain64", "--key-size=512", "--sector-size=4096",
		"--offset=" + strconv.Itoa(payloadOffset/512), "--key-slot=0", "--key-file=/dev/fd/3",
	}, append(derivation(way), v.device)...)...)
	return err
}

// addKey gives a volume that open opens another key, and returns its slot.
func (v volume) addKey(ctx context.Context, open, key []byte, way stick.Seal) (string, error) {
	before, err := v.header(ctx)
	if err != nil {
		return "", err
	}

	slot := ""
	for n := 0; n < 32 && slot == ""; n++ { // LUKS2 has room for 32
		if s := strconv.Itoa(n); !slices.Contains(before.Slots, s) {
			slot = s
		}
	}
	if slot == "" {
		return "", errors.New("add key: all slots of the volume are in use")
	}

	_, err = v.k.output(ctx, [][]byte{open, key}, "cryptsetup", append([]string{
		"luksAddKey", "--batch-mode", "--key-slot=" + slot, "--key-file=/dev/fd/3",
	}, append(derivation(way), v.device, "/dev/fd/4")...)...)
	return slot, err
}

// addToken says in the header what opens a slot.
func (v volume) addToken(ctx context.Context, t token) error {
	t.Type = tokenTypes[t.Way]
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("add token: %w", err)
	}
	_, err = v.k.output(ctx, [][]byte{text}, "cryptsetup", "token", "import", "--json-file=/dev/fd/3", v.device)
	return err
}

// removeToken takes a way away: first the slot, without which the token opens nothing. cryptsetup overwrites it.
func (v volume) removeToken(ctx context.Context, t token) error {
	if slot := t.slot(); slot != "" {
		if err := v.removeSlot(ctx, slot); err != nil {
			return err
		}
	}
	_, err := v.k.output(ctx, nil, "cryptsetup", "token", "remove", "--token-id="+strconv.Itoa(t.ID), v.device)
	return err
}

// removeSlot takes a key away, whatever token names its slot.
func (v volume) removeSlot(ctx context.Context, slot string) error {
	_, err := v.k.output(ctx, nil, "cryptsetup", "luksKillSlot", "--batch-mode", v.device, slot)
	return err
}

// errWrongKey says that a key does not open a volume.
var errWrongKey = errors.New("wrong key")

// try reports by its error whether a key opens a slot; "" is any slot.
func (v volume) try(ctx context.Context, key []byte, slot string) error {
	args := []string{"open", "--batch-mode", "--test-passphrase", "--type=luks2", "--key-file=/dev/fd/3"}
	if slot != "" {
		args = append(args, "--key-slot="+slot)
	}
	return wrongKey(v.k.output(ctx, [][]byte{key}, "cryptsetup", append(args, v.device)...))
}

// open makes the volume's content the device mapped.
func (v volume) open(ctx context.Context, key []byte) error {
	return wrongKey(v.k.output(ctx, [][]byte{key}, "cryptsetup", "open", "--batch-mode", "--type=luks2",
		"--key-file=/dev/fd/3", v.device, mapperName))
}

func (v volume) close(ctx context.Context) error {
	_, err := v.k.output(ctx, nil, "cryptsetup", "close", mapperName)
	return err
}

// setUUID makes the volume say whose it is; nothing is written if it does already.
func (v volume) setUUID(ctx context.Context, uuid string) error {
	_, err := v.k.output(ctx, nil, "cryptsetup", "luksUUID", "--batch-mode", "--uuid="+uuid, v.device)
	return err
}

// wrongKey makes cryptsetup's exit code 2, "no permission (bad passphrase)" (cryptsetup(8), RETURN CODES), errWrongKey.
func wrongKey(_ []byte, err error) error {
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return errWrongKey
	}
	return err
}
