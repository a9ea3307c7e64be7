package sitesource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Bounds of what is read of a source.
const (
	maxFiles    = 500
	maxFileSize = 1 << 20 // bytes
	maxSize     = 8 << 20 // bytes of all files
	maxListed   = 20_000  // names that are looked at, whatever they are of
)

// Request is what is to be fetched, as the process that fetches reads it. One of Git and Bucket is given.
type Request struct {
	Git    *Git    `json:"git,omitempty"`
	Bucket *Bucket `json:"bucket,omitempty"`
	Path   string  `json:"path,omitempty"`  // of the folder; "" for all of the source
	Known  string  `json:"known,omitempty"` // revision whose files are not needed again
	Base   string  `json:"base,omitempty"`  // revision that the new one must descend from
}

// Git is a branch of a repository.
type Git struct {
	URL        string   `json:"url"`
	Branch     string   `json:"branch"`
	Username   string   `json:"username,omitempty"`
	Password   string   `json:"password,omitempty"`
	PrivateKey string   `json:"privateKey,omitempty"` // that logs in by SSH
	KnownHosts []string `json:"knownHosts,omitempty"` // lines as in known_hosts
	CA         string   `json:"ca,omitempty"`         // PEM
	OpenPGP    []string `json:"openPGP,omitempty"`    // keys that sign commits, in armor
	SSH        []string `json:"ssh,omitempty"`        // the same, as in authorized_keys
}

// Bucket is a bucket of an S3 store.
type Bucket struct {
	Endpoint  string `json:"endpoint"`
	Region    string `json:"region"`
	Name      string `json:"name"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	CA        string `json:"ca,omitempty"` // PEM
}

// Answer is what the source has.
type Answer struct {
	Revision string            `json:"revision"`          // BRANCH@sha1:COMMIT, or sha256:DIGEST of a bucket
	Files    map[string][]byte `json:"files,omitempty"`   // *.yaml and *.yml by their paths below the folder; none if Revision is Known
	Refusal  string            `json:"refusal,omitempty"` // why the revision is not to be applied; it then has no files
}

// Fetch asks the source. The error is of one that does not answer as it should.
func Fetch(ctx context.Context, r Request) (Answer, error) {
	switch {
	case r.Git != nil:
		return fetchGit(ctx, *r.Git, r)
	case r.Bucket != nil:
		return fetchBucket(ctx, *r.Bucket, r)
	}
	return Answer{}, errors.New("no source is named")
}

// newTLS trusts the authorities ca, PEM, and no others; "": the public ones.
func newTLS(ca string) (*tls.Config, error) {
	if ca == "" {
		return &tls.Config{}, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("the authority of the source holds no certificate")
	}
	return &tls.Config{RootCAs: pool}, nil
}

// files collects what is read of a source.
type files struct {
	all  map[string][]byte
	size int64
}

// isWanted reports whether a file can hold what an appliance takes.
func isWanted(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// add takes one file of a size in bytes, which read returns. A refusal says which bound it is over.
func (f *files) add(name string, size int64, read func() ([]byte, error)) error {
	if f.size += size; size > maxFileSize || f.size > maxSize || len(f.all) == maxFiles {
		return refusal{fmt.Errorf("%s: an appliance reads %d files of a source, each of %d KiB at most, and %d KiB of all; keep "+
			"other YAML in another folder", name, maxFiles, maxFileSize>>10, maxSize>>10)}
	}
	text, err := read()
	if err != nil {
		return err
	}
	if f.all == nil {
		f.all = map[string][]byte{}
	}
	f.all[name] = text
	return nil
}

// describeCrowd is why a folder with too many names is refused.
func describeCrowd(folder string) string {
	return fmt.Sprintf("folder %q of it has more than %d files and folders; keep what is of an appliance in a folder of its own, "+
		"and name that in appliance.follow.path", folder, maxListed)
}

// describeMissing is why a revision without any file is refused: applied, it would remove all that came from the source.
func describeMissing(folder string) string {
	if folder == "" {
		return "it has no file *.yaml; add site.yaml"
	}
	return fmt.Sprintf("it has no file *.yaml in folder %s; add %s, or correct appliance.follow.path",
		folder, path.Join(folder, SiteName))
}

// shorten is a revision for people: the branch with the first digits of the commit.
func shorten(revision string) string {
	branch, digest, isCommit := strings.Cut(revision, "@sha1:")
	if isCommit && len(digest) > 12 {
		return branch + "@" + digest[:12]
	}
	if digest, ok := strings.CutPrefix(revision, "sha256:"); ok && len(digest) > 12 {
		return digest[:12]
	}
	return revision
}
