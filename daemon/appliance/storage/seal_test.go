package storage

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/tpm"
)

var errAbsent = errors.New("the firmware announces no TPM 2.0")

func TestPlanMaking(t *testing.T) {
	nothing, both := means{NoTPM: errAbsent}, means{TPM: true, KeyFile: true}
	onlyTPM, onlyFile := means{TPM: true}, means{KeyFile: true, NoTPM: errAbsent}
	for _, c := range []struct {
		require Requirement
		means   means
		ways    []stick.Seal
		state   stick.StorageState
		says    string
	}{
		{RequireNothing, nothing, []stick.Seal{stick.SealBeside}, "", ""},
		{RequireNothing, onlyTPM, []stick.Seal{stick.SealTPM}, "", ""},
		{RequireNothing, onlyFile, []stick.Seal{stick.SealKeyFile}, "", ""},
		{RequireNothing, both, []stick.Seal{stick.SealTPM, stick.SealKeyFile}, "", ""},
		{RequireTPM, onlyTPM, []stick.Seal{stick.SealTPM}, "", ""},
		{RequireTPM, both, []stick.Seal{stick.SealTPM, stick.SealKeyFile}, "", ""},
		{RequireTPM, nothing, nil, stick.StorageLocked, "has none that can be used: the firmware announces no TPM 2.0"},
		{RequireTPM, onlyFile, nil, stick.StorageLocked, "site.yaml requires a TPM"},
		{RequireKeyFile, onlyFile, []stick.Seal{stick.SealKeyFile}, "", ""},
		{RequireKeyFile, both, []stick.Seal{stick.SealTPM, stick.SealKeyFile}, "", ""},
		{RequireKeyFile, nothing, nil, stick.StorageLocked, "no medium labelled FL-KEY"},
		{RequireKeyFile, onlyTPM, nil, stick.StorageLocked, "no medium labelled FL-KEY"},
		{RequireUnknown, onlyTPM, []stick.Seal{stick.SealTPM}, "", ""},
		{RequireUnknown, onlyFile, []stick.Seal{stick.SealKeyFile}, "", ""},
		{RequireUnknown, nothing, nil, stick.StorageVolatile, "correct site.yaml"},
	} {
		got := planMaking(c.require, c.means)
		assert.Equal(t, c.ways, got.Ways, "%q %+v", c.require, c.means)
		assert.Equal(t, c.state, got.State, "%q %+v", c.require, c.means)
		assert.Contains(t, got.Refusal, c.says, "%q %+v", c.require, c.means)
		assert.NotContains(t, got.Refusal, "\n")
	}
}

func TestPlanResealing(t *testing.T) {
	here := token{ID: 0, Way: stick.SealTPM, Slots: []string{"0"}}
	other := token{ID: 1, Way: stick.SealTPM, Slots: []string{"1"}}
	file := token{ID: 2, Way: stick.SealKeyFile, Slots: []string{"2"}}
	beside := token{ID: 3, Way: stick.SealBeside, Slots: []string{"3"}}
	for _, c := range []struct {
		name   string
		tokens []token
		opened token
		means  means
		add    []stick.Seal
		remove []token
		seal   stick.Seal // if nothing was changed
	}{
		{"every boot", []token{here}, here, means{TPM: true}, nil, nil, stick.SealTPM},
		{"with a key file", []token{here, file}, here, means{TPM: true}, nil, nil, stick.SealTPM},
		{"the key file's medium was left in", []token{here, file}, here, means{TPM: true, KeyFile: true}, nil, nil, stick.SealTPM},
		{"a key file is brought", []token{here}, here, means{TPM: true, KeyFile: true}, []stick.Seal{stick.SealKeyFile}, nil, stick.SealTPM},
		{"power cut before the other TPM's was removed", []token{here, other}, here, means{TPM: true}, nil, []token{other}, stick.SealTPM},
		{"power cut before the key beside was removed", []token{here, beside}, here, means{TPM: true}, nil, []token{beside}, stick.SealBeside},
		{"recovered on another machine", []token{other, file}, file, means{TPM: true, KeyFile: true}, []stick.Seal{stick.SealTPM}, []token{other}, stick.SealKeyFile},
		{"recovered on a machine without TPM", []token{other, file}, file, means{KeyFile: true}, nil, nil, stick.SealKeyFile},
		{"key file alone", []token{file}, file, means{KeyFile: true}, nil, nil, stick.SealKeyFile},
		{"no TPM, no medium", []token{beside}, beside, means{}, nil, nil, stick.SealBeside},
		{"the TPM was switched on", []token{beside}, beside, means{TPM: true}, []stick.Seal{stick.SealTPM}, []token{beside}, stick.SealBeside},
		{"the TPM was cleared, beside was left by a power cut", []token{other, beside}, beside, means{TPM: true}, []stick.Seal{stick.SealTPM}, []token{other, beside}, stick.SealBeside},
		{"a key file is brought, no TPM", []token{beside}, beside, means{KeyFile: true}, []stick.Seal{stick.SealKeyFile}, []token{beside}, stick.SealBeside},
		{"power cut after it was added", []token{file, beside}, file, means{KeyFile: true}, nil, []token{beside}, stick.SealBeside},
		{"another key file than the volume's", []token{file, beside}, beside, means{KeyFile: true}, nil, nil, stick.SealBeside},
		{"the TPM is gone", []token{other, beside}, beside, means{}, nil, nil, stick.SealBeside},
	} {
		got := planResealing(c.tokens, c.opened, c.means)
		assert.Equal(t, resealing{Add: c.add, Remove: c.remove}, got, c.name)
		if len(got.Add) == 0 {
			assert.NotContains(t, got.Remove, c.opened, "%s: what opened it is removed, and nothing is added", c.name)
		}
		assert.Equal(t, c.seal, sealOf(c.tokens, c.opened), c.name)
	}
}

// TestDataThatIsNotSealedAsRequiredIsNamed, and used: an appliance in use may have made it before.
func TestDataThatIsNotSealedAsRequiredIsNamed(t *testing.T) {
	for _, c := range []struct {
		require Requirement
		opened  stick.Seal
		named   bool
	}{
		{RequireTPM, stick.SealBeside, true},
		{RequireTPM, stick.SealNone, true},
		{RequireTPM, stick.SealTPM, false},
		{RequireTPM, stick.SealKeyFile, false}, // in another machine
		{RequireKeyFile, stick.SealBeside, true},
		{RequireNothing, stick.SealBeside, false},
		{RequireUnknown, stick.SealBeside, false},
	} {
		text := describeForeign(c.require, c.opened)
		assert.Equal(t, c.named, text != "", "%+v", c)
		if c.named {
			assert.Contains(t, text, "appliance.seal.require: "+string(c.require))
			assert.Contains(t, text, "someone has put another DATA in its place")
		}
	}
}

func TestDescribeLocked(t *testing.T) {
	sealed, file := []token{{Way: stick.SealTPM}}, []token{{Way: stick.SealKeyFile}}
	for _, c := range []struct {
		name     string
		tokens   []token
		means    means
		unsealed error
		says     string
	}{
		{"another machine", sealed, means{TPM: true}, tpm.ErrOtherTPM, "sealed to another machine's TPM"},
		{"a machine without TPM", sealed, means{NoTPM: errAbsent}, nil, "the firmware announces no TPM 2.0"},
		{"Secure Boot was changed", sealed, means{TPM: true}, tpm.ErrMeasurements, "PCR 7"},
		{"the TPM is faulty", sealed, means{TPM: true}, errors.New("self-test"), "does not unseal its key: self-test"},
		{"a wrong key file", sealed, means{TPM: true, KeyFile: true}, tpm.ErrOtherTPM, "is not its own"},
		{"the medium is missing", file, means{TPM: true}, nil, "attach a medium labelled FL-KEY"},
	} {
		text := describeLocked(c.tokens, c.means, c.unsealed)
		assert.Contains(t, text, c.says, c.name)
		assert.Contains(t, text, "attach a medium labelled FL-KEY with the key file firstlight.key, then restart", c.name)
		assert.Equal(t, 1, strings.Count(text, "DATA is not opened: "), c.name)
	}
	assert.Contains(t, describeLocked(nil, means{TPM: true}, nil), "its header names no key")
}

func TestTheRequirementIsReadOfAnySite(t *testing.T) {
	for text, want := range map[string]Requirement{
		"":                                    RequireNothing,
		"# nothing\n":                         RequireNothing,
		"name: rack\n":                        RequireNothing,
		"appliance: {seal: {require: tpm}}\n": RequireTPM,
		"appliance: {seal: {require: key-file}}\n":                  RequireKeyFile,
		"nodes: 7\nwrong: yes\nappliance: {seal: {require: tpm}}\n": RequireTPM,
		"appliance: {seal: {require: tmp}}\n":                       RequireUnknown,
		"appliance: {seal: {require: [tpm]}}\n":                     RequireUnknown,
		"appliance:\n\tseal: {require: tpm}\n":                      RequireUnknown,
	} {
		assert.Equal(t, want, parseRequirement([]byte(text)), text)
	}
	assert.Equal(t, RequireNothing, readRequirement(t.TempDir()+"/none"))
}

func TestParseKeyFile(t *testing.T) {
	key, err := parseKeyFile(strings.NewReader("\r\n  correct horse battery staple \r\n"))
	assert.NoError(t, err)
	assert.Equal(t, "correct horse battery staple", string(key))
	for text, says := range map[string]string{
		"":                           "has 0 bytes",
		"short":                      "has 5 bytes",
		strings.Repeat("x", 600):     "512 are asked for",
		"two lines of\nmany letters": "one line",
	} {
		_, err := parseKeyFile(strings.NewReader(text))
		assert.ErrorContains(t, err, says)
	}
}
