package userns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Files that give subordinate IDs to users (subuid(5), subgid(5)).
const (
	uidFile = "/etc/subuid"
	gidFile = "/etc/subgid"
)

// Range is IDs that a user has been given: Count of them, from First on.
type Range struct{ First, Count int }

// mapping is a program that maps IDs, and its words after the process.
type mapping struct {
	program string
	words   []string
}

// readMappings says how the IDs of a namespace of this user are mapped.
func readMappings() ([]mapping, error) {
	uids, gids, err := ReadRanges()
	if err != nil {
		return nil, err
	}

	return []mapping{
		{"newuidmap", mappingWords(os.Geteuid(), uids)}, {"newgidmap", mappingWords(os.Getegid(), gids)},
	}, nil
}

// ReadRanges are the subordinate IDs of the user that this process is of; none if no file names him.
func ReadRanges() (uids, gids []Range, err error) {
	id := strconv.Itoa(os.Geteuid())
	names := []string{id}
	if u, err := user.Current(); err == nil { // one of a directory service is in no file of this machine
		names = append(names, u.Username)
	}

	for _, f := range []struct {
		path string
		into *[]Range
	}{{uidFile, &uids}, {gidFile, &gids}} {
		file, err := os.Open(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read subordinate IDs: %w", err)
		}

		*f.into, err = parseRanges(file, names)
		file.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", f.path, err)
		}
	}

	return uids, gids, nil
}

// parseRanges are the ranges of whom one of the names stands for. Lines that are none are passed over, as newuidmap does.
func parseRanges(text io.Reader, names []string) ([]Range, error) {
	var found []Range
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		words := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(words) != 3 {
			continue
		}

		first, firstErr := strconv.Atoi(words[1])
		count, countErr := strconv.Atoi(words[2])
		if firstErr != nil || countErr != nil || count <= 0 {
			continue
		}
		for _, name := range names {
			if words[0] == name {
				found = append(found, Range{First: first, Count: count})
				break
			}
		}
	}

	return found, lines.Err()
}

// Amount is how many IDs are in the ranges.
func Amount(ranges []Range) int {
	all := 0
	for _, r := range ranges {
		all += r.Count
	}
	return all
}

// mappingWords are those of newuidmap and newgidmap: own becomes 0, the ranges follow from 1 on.
func mappingWords(own int, ranges []Range) []string {
	words := []string{"0", strconv.Itoa(own), "1"}
	inside := 1
	for _, r := range ranges {
		words = append(words, strconv.Itoa(inside), strconv.Itoa(r.First), strconv.Itoa(r.Count))
		inside += r.Count
	}
	return words
}

// allIDs is what the first user namespace, and no other, says of its IDs (user_namespaces(7)).
const allIDs = "0 0 4294967295"

// mapFile has the IDs of this process's user namespace: a line for each range, with where it begins inside, where
// outside, and how many they are.
const mapFile = "/proc/self/uid_map"

// IsInside reports whether this process is in another user namespace than the machine's first.
func IsInside() bool {
	text, err := os.ReadFile(mapFile)
	return err == nil && !isInitialMap(string(text))
}

func isInitialMap(text string) bool { return strings.Join(strings.Fields(text), " ") == allIDs }

// OwnerID is the user of this process as the machine knows him: for root of a user namespace, whose namespace it is.
func OwnerID() int {
	text, err := os.ReadFile(mapFile)
	if err != nil {
		return os.Geteuid()
	}
	return outsideID(os.Geteuid(), string(text))
}

// outsideID is an ID of a namespace with that map outside of it, the same if the map has none.
func outsideID(id int, text string) int {
	for line := range strings.Lines(text) {
		var r struct{ inside, outside, count int }
		if _, err := fmt.Sscan(line, &r.inside, &r.outside, &r.count); err != nil {
			continue
		}
		if id >= r.inside && id < r.inside+r.count {
			return r.outside + id - r.inside
		}
	}
	return id
}
