package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
)

// Pusher keeps the registry's pushed images what the records say.
type Pusher struct {
	Registry  string            // HOST:PORT
	Transport http.RoundTripper // with a certificate that may push
	State     string            // a file that knows what was pushed
	File      func(artifact.Key) string

	// Tell is told under which names an artifact is served, or why it is not.
	Tell func(ctx context.Context, k artifact.Key, sha256 string, names []string, why string) error
}

// served is an image in the registry.
type served struct {
	Digest   string `json:"digest"`   // of its manifest
	Artifact string `json:"artifact"` // its key
	SHA256   string `json:"sha256"`   // of the archive
}

// Sync pushes what is not there, and takes away what was pushed and is not wanted any more. It may be
// cut off and called again.
func (p *Pusher) Sync(ctx context.Context, complete []artifact.Record) error {
	state, err := p.read()
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var failed []error
	// Of two with one name the older one has it.
	records := slices.SortedFunc(slices.Values(complete), func(a, b artifact.Record) int { return a.Created.Compare(b.Created) })
	for _, r := range records {
		if r.SHA256 == "" {
			continue // it came by S3 itself and is still being read
		}
		names, why, err := p.one(ctx, r, state, wanted)
		if err != nil {
			failed = append(failed, err)
		}
		// A registry that does not answer takes nothing away.
		for _, n := range names {
			wanted[n] = true
		}
		if err == nil && (!slices.Equal(names, r.ServedAs) || why != r.NotServed) {
			failed = append(failed, p.Tell(ctx, key(r), r.SHA256, names, why))
		}
	}
	return errors.Join(append(failed, p.withdraw(ctx, state, wanted))...)
}

func key(r artifact.Record) artifact.Key {
	return artifact.Key{Collection: artifact.Container, Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName}
}

// one serves one archive. It returns the names that it has, or a sentence why it has none.
func (p *Pusher) one(ctx context.Context, r artifact.Record, state map[string]served, taken map[string]bool) (names []string, why string, err error) {
	k := key(r)
	if names = known(state, k, r.SHA256); len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return taken[n] }) {
		there, err := p.allThere(ctx, names, state)
		if there || err != nil {
			return names, "", err
		}
	}
	images, err := open(p.File(k))
	if err != nil {
		return nil, err.Error(), nil
	}
	names = nil
	for _, image := range images {
		digest, err := image.image.Digest()
		if err != nil {
			return nil, "its content does not fit together: " + err.Error(), nil
		}
		for _, n := range image.names {
			if taken[n.String()] {
				return nil, n.String() + " is the name of an image that was brought before; give this one another", nil
			}
			// Before it is pushed, so that a cut leaves nothing that nobody knows.
			state[n.String()] = served{digest.String(), k.String(), r.SHA256}
			if err := p.write(state); err != nil {
				return names, "", err
			}
			tag, err := p.tag(n.String())
			if err != nil {
				return nil, err.Error(), nil
			}
			err = remote.Write(tag, image.image, remote.WithTransport(p.Transport), remote.WithContext(ctx), remote.WithJobs(1))
			if reason := refusal(err); reason != "" {
				delete(state, n.String())
				return nil, reason, p.write(state)
			}
			names = append(names, n.String())
			if err != nil {
				return names, "", fmt.Errorf("push %s: %w", n, err)
			}
		}
	}
	return names, "", nil
}

// refusal is what the registry said that trying again will not change.
func refusal(err error) string {
	var e *transport.Error
	if !errors.As(err, &e) || e.StatusCode >= 500 || e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusUnauthorized {
		return ""
	}
	for _, d := range e.Errors {
		if d.Message != "" {
			return d.Message
		}
	}
	return e.Error()
}

// known are the names that the very archive was pushed under, sorted.
func known(state map[string]served, k artifact.Key, sha256 string) (names []string) {
	for _, n := range slices.Sorted(maps.Keys(state)) {
		if s := state[n]; s.Artifact == k.String() && s.SHA256 == sha256 {
			names = append(names, n)
		}
	}
	return names
}

func (p *Pusher) allThere(ctx context.Context, names []string, state map[string]served) (bool, error) {
	for _, n := range names {
		tag, err := p.tag(n)
		if err != nil {
			return false, err
		}
		d, err := remote.Head(tag, remote.WithTransport(p.Transport), remote.WithContext(ctx))
		var e *transport.Error
		if errors.As(err, &e) && e.StatusCode == http.StatusNotFound {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("ask registry for %s: %w", n, err)
		}
		if d.Digest.String() != state[n].Digest {
			return false, nil
		}
	}
	return true, nil
}

// withdraw takes away names that are not wanted.
func (p *Pusher) withdraw(ctx context.Context, state map[string]served, wanted map[string]bool) error {
	for _, n := range slices.Sorted(maps.Keys(state)) {
		if wanted[n] {
			continue
		}
		tag, err := p.tag(n)
		if err == nil {
			err = remote.Delete(tag, remote.WithTransport(p.Transport), remote.WithContext(ctx))
		}
		var e *transport.Error
		if err != nil && (!errors.As(err, &e) || e.StatusCode != http.StatusNotFound) {
			return fmt.Errorf("withdraw %s: %w", n, err)
		}
		delete(state, n)
		if err := p.write(state); err != nil {
			return err
		}
	}
	return nil
}

// tag is where the registry keeps an image: its whole name is the repository's, but for the stick's
// own domain, which has none.
func (p *Pusher) tag(full string) (name.Tag, error) {
	return name.NewTag(p.Registry + "/" + strings.TrimPrefix(full, assets.ImageDomain+"/"))
}

func (p *Pusher) read() (map[string]served, error) {
	state := map[string]served{}
	text, err := os.ReadFile(p.State)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was pushed: %w", err)
	}
	return state, nil
}

// write replaces the file as a whole.
func (p *Pusher) write(state map[string]served) error {
	text, err := json.MarshalIndent(state, "", " ")
	if err != nil {
		return fmt.Errorf("write what was pushed: %w", err)
	}
	f, err := os.Create(p.State + ".new")
	if err != nil {
		return fmt.Errorf("write what was pushed: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write what was pushed: %w", err)
	}
	return os.Rename(p.State+".new", p.State)
}
