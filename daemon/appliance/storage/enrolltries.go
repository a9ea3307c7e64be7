package storage

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/bootchain"
)

// readTries is how often the owner's keys were written to firmware that has not had them after a restart yet, as a file on
// SITE says: DATA is not open then, and firmware that forgets its keys forgets other variables as well. A file that
// cannot be read counts as the last try.
func (k Preparer) readTries() int {
	text, err := os.ReadFile(filepath.Join(k.siteDir(), stick.EnrollTriesName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	tries, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil || tries < 0 {
		return bootchain.MaxTries
	}
	return tries
}

// saveTries replaces that file.
func (k Preparer) saveTries(tries int) error {
	write := ReplaceSite
	if k.WriteSite != nil {
		write = k.WriteSite
	}
	return write(k.siteDir(), stick.EnrollTriesName, []byte(strconv.Itoa(tries)+"\n"), func() error { return nil })
}

func (k Preparer) siteDir() string { return cmp.Or(k.SiteDir, stick.SiteDir) }
