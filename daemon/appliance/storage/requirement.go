package storage

import (
	"bytes"
	"errors"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/assets/site"
)

// readRequirement is what the first of the site documents at paths that is there asks of the key of DATA. Mistakes
// elsewhere in it do not matter here: they are named when the daemon reads it.
func readRequirement(paths ...string) Requirement {
	for _, path := range paths {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return RequireUnknown
		}
		text, err := io.ReadAll(io.LimitReader(f, site.MaxSize+1))
		f.Close()
		if err != nil {
			return RequireUnknown
		}

		return parseRequirement(text)
	}
	return RequireNothing
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
