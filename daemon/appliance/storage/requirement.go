package storage

import (
	"bytes"
	"errors"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/assets/site"
)

// readDocument is the text of the first of the site documents at paths that is there; nil if there is none.
func readDocument(paths ...string) ([]byte, error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(f, site.MaxSize+1))
		return text, errors.Join(err, f.Close())
	}
	return nil, nil
}

// readRequirement is what the site document asks of the key of DATA. Mistakes elsewhere in it do not matter here: they
// are named when the daemon reads it.
func readRequirement(paths ...string) Requirement {
	text, err := readDocument(paths...)
	if err != nil {
		return RequireUnknown
	}
	return parseRequirement(text)
}

// asksToEnroll reports whether the site document asks for the owner's keys in the firmware.
func asksToEnroll(paths ...string) bool {
	var document struct {
		Appliance struct {
			SecureBoot struct {
				Enroll bool `yaml:"enroll"`
			} `yaml:"secureBoot"`
		} `yaml:"appliance"`
	}
	text, err := readDocument(paths...)
	return err == nil && yaml.Unmarshal(text, &document) == nil && document.Appliance.SecureBoot.Enroll
}

func parseRequirement(text []byte) Requirement {
	var document struct {
		Appliance struct {
			Seal struct {
				Require string `yaml:"require"`
			} `yaml:"seal"`
		} `yaml:"appliance"`
	}
	err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&document)
	if err != nil && !errors.Is(err, io.EOF) {
		return RequireUnknown
	}

	switch r := Requirement(document.Appliance.Seal.Require); r {
	case RequireNothing, RequireTPM, RequireKeyFile:
		return r
	default:
		return RequireUnknown // a mistake, and one that could mean a TPM
	}
}
