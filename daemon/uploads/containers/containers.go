package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/excerpt"
)

// Pusher keeps the registry's pushed images what the records say. One that is kept remembers which archives
// it need not read again; only one Sync may run at a time.
type Pusher struct {
	Registry  string            // HOST:PORT
	Transport http.RoundTripper // with a certificate that may push
	State     string            // a file that knows what was pushed
	File      func(artifact.Key) string
	Stick     string // folder of the stick with archives, OWNER/FILE; "" or missing: none
	Bundles   string // folder that gets the bundles: OWNER/NAME/VERSION, see assets/bundle

	// Report is told under which names an artifact is served, or why it is not.
	Report func(ctx context.Context, k artifact.Key, sha256 string, names []string, why string) error

	Now func() time.Time // nil is time.Now

	Log *slog.Logger

	memory map[artifact.Key]*archiveInfo
	stick  []artifact.Metadata // nil until it was read

	logged map[artifact.Key]string // what the log has of its archives
}

// servedImage is an image in the registry.
type servedImage struct {
	Digest   string `json:"digest"`   // of its manifest
	Artifact string `json:"artifact"` // its key
	SHA256   string `json:"sha256"`   // of the archive
}

// Sync pushes what is not there, and takes away what was pushed and is not wanted any more. It may be
// cut off and called again.
func (p *Pusher) Sync(ctx context.Context, complete []artifact.Metadata) error {
	state, err := p.readState()
	if err != nil {
		return err
	}

	stick, err := p.listStick(ctx)
	if err != nil {
		return err
	}

	taken := map[string]string{} // names, and of which image
	packed := newClaims()
	listed := map[artifact.Key]bool{}
	var failed []error
	// Of two of an owner with one name the older one has it.
	records := slices.SortedFunc(
		slices.Values(slices.Concat(stick, complete)), func(a, b artifact.Metadata) int { return a.Created.Compare(b.Created) },
	)
	for _, r := range records {
		listed[keyOf(r)] = true
		if r.SHA256 == "" {
			continue // it came by S3 itself and is still being read
		}

		names, why, err := p.syncArchive(ctx, r, state, taken, packed)
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}

		if err != nil {
			failed = append(failed, err)
		}

		packed.conclude(keyOf(r), p.memory[keyOf(r)], why, err)
		// A registry that does not answer takes nothing away.
		for _, n := range names {
			served := artifact.ServedImage(r.Owner, n)
			if _, is := taken[served]; !is {
				taken[served] = p.imageID(keyOf(r), n)
			}
		}

		why = excerpt.Start(why, maxWhy)
		if r.ClusterName == onStick {
			p.logStick(r, why)
			continue
		}
		if err == nil && (!slices.Equal(names, r.ServedAs) || why != r.NotServed) {
			failed = append(failed, p.Report(ctx, keyOf(r), r.SHA256, names, why))
		}
	}

	maps.DeleteFunc(p.memory, func(k artifact.Key, _ *archiveInfo) bool { return !listed[k] })
	// Bundles say which images there are, so they come after those that go.
	failed = append(failed, p.withdraw(ctx, state, taken))
	return errors.Join(append(failed, p.publishBundles(ctx, packed, taken))...)
}

// imageID is of which image an archive says a name; "" if it is not known.
func (p *Pusher) imageID(k artifact.Key, name string) string {
	if m := p.memory[k]; m != nil {
		for _, i := range m.images {
			if slices.Contains(i.names, name) {
				return i.id
			}
		}
	}
	return ""
}

func keyOf(r artifact.Metadata) artifact.Key {
	return artifact.Key{Collection: artifact.Container, Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName}
}

// syncArchive serves one archive. It returns the names that it has, sorted, or a sentence why it has none. An
// image that an older archive has under the same name need not be pushed.
func (p *Pusher) syncArchive(
	ctx context.Context,
	r artifact.Metadata,
	state map[string]servedImage,
	taken map[string]string,
	packed *claims,
) (names []string, why string, err error) {
	k := keyOf(r)
	m, err := p.inspect(ctx, k, r.SHA256)
	if err != nil {
		return pushedNames(state, k, r.SHA256), "", err
	}
	if m.why != "" {
		return nil, m.why, nil
	}

	if why := packed.add(k, m); why != "" {
		return nil, why, nil
	}

	own := map[string]bool{}
	for _, i := range m.images {
		for _, n := range i.names {
			id, is := taken[artifact.ServedImage(k.Owner, n)]
			if is && id != i.id {
				return nil, n + " is the name of another image that you uploaded before; give this one another", nil
			}
			names, own[n] = append(names, n), !is
		}
	}

	slices.Sort(names)
	if m.refused != "" && p.now().Before(m.retryAt) {
		return nil, m.refused, nil
	}

	there, err := p.allPushed(ctx, own, state, k, r.SHA256)
	if there || err != nil {
		return names, "", err
	}
	if m.failed != nil && p.now().Before(m.retryAt) {
		return names, "", fmt.Errorf(
			"%s is pushed again in %s: %w", k.Name, m.retryAt.Sub(p.now()).Round(time.Second), m.failed,
		)
	}

	m.refused, m.failed = "", nil
	why, err = p.push(ctx, k, m, own, state)
	if why != "" {
		return nil, why, err
	}

	return names, "", err
}

// push brings those images of an archive into the registry that have a name of their own. why is what
// cannot be got over by trying again.
func (p *Pusher) push(
	ctx context.Context,
	k artifact.Key,
	m *archiveInfo,
	own map[string]bool,
	state map[string]servedImage,
) (why string, err error) {
	all, err := open(ctx, p.path(k))
	if err != nil {
		return "", err // it could be read before
	}

	for _, i := range all.images {
		i.names = slices.DeleteFunc(i.names, func(n string) bool { return !own[n] || p.imageID(k, n) != i.id })
		if len(i.names) == 0 {
			continue
		}

		image, err := i.image()
		var digest v1.Hash
		if err == nil {
			digest, err = image.Digest()
		}

		if isLocalFailure(ctx, err) {
			return "", err
		}
		if err != nil {
			m.why = "its content does not fit together: " + err.Error()
			return m.why, nil
		}

		for _, n := range i.names {
			// Before it is pushed, so that a cut leaves nothing that nobody knows.
			served := artifact.ServedImage(k.Owner, n)
			state[served] = servedImage{digest.String(), k.String(), m.sha256}
			if err := p.writeState(state); err != nil {
				return "", err
			}

			tag, err := p.tagFor(served)
			if err != nil {
				return "", err
			}

			err = remote.Write(
				tag, image, remote.WithTransport(p.Transport), remote.WithContext(ctx), remote.WithJobs(1),
			)
			if reason := refusalOf(err); reason != "" {
				delete(state, served)
				m.refused, m.retryAt = reason, p.now().Add(recheckInterval)
				return reason, p.writeState(state)
			}
			if err != nil {
				err = fmt.Errorf("push %s: %w", n, err)
				m.postpone(p.now(), err)
				return "", err
			}
		}
	}

	m.pause = 0
	return "", nil
}

// refusalOf is what the registry said that trying again will not change.
func refusalOf(err error) string {
	var e *transport.Error
	if !errors.As(
		err, &e,
	) || e.StatusCode >= 500 || e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusUnauthorized {
		return ""
	}

	for _, d := range e.Errors {
		if d.Message != "" {
			return d.Message
		}
	}

	return e.Error()
}

// pushedNames are the names that the very archive was pushed under, sorted.
func pushedNames(state map[string]servedImage, k artifact.Key, sha256 string) (names []string) {
	for _, n := range slices.Sorted(maps.Keys(state)) {
		if s := state[n]; s.Artifact == k.String() && s.SHA256 == sha256 {
			names = append(names, strings.TrimPrefix(n, artifact.ServedImage(k.Owner, "")))
		}
	}
	return names
}

// allPushed tells whether the registry has all names that are an archive's own as they were pushed. It is asked
// also for those that never were: one that does not answer costs no reading of the archive.
func (p *Pusher) allPushed(
	ctx context.Context,
	own map[string]bool,
	state map[string]servedImage,
	k artifact.Key,
	sha256 string,
) (bool, error) {
	all := true
	for _, n := range slices.Sorted(maps.Keys(own)) {
		if !own[n] {
			continue
		}

		served := artifact.ServedImage(k.Owner, n)
		tag, err := p.tagFor(served)
		if err != nil {
			return false, err
		}

		d, err := remote.Head(tag, remote.WithTransport(p.Transport), remote.WithContext(ctx))
		s := state[served]
		switch {
		case refusalOf(err) != "": // 404 is one; of others the push hears more
			all = false
		case err != nil:
			return false, fmt.Errorf("ask registry for %s: %w", n, err)
		case s.Artifact != k.String() || s.SHA256 != sha256 || s.Digest != d.Digest.String():
			all = false
		}
	}
	return all, nil
}

// withdraw takes away names that are not wanted.
func (p *Pusher) withdraw(ctx context.Context, state map[string]servedImage, wanted map[string]string) error {
	for _, n := range slices.Sorted(maps.Keys(state)) {
		if _, is := wanted[n]; is {
			continue
		}

		tag, err := p.tagFor(n)
		if err == nil {
			err = remote.Delete(tag, remote.WithTransport(p.Transport), remote.WithContext(ctx))
		}

		var e *transport.Error
		if err != nil && (!errors.As(err, &e) || e.StatusCode != http.StatusNotFound) {
			return fmt.Errorf("withdraw %s: %w", n, err)
		}

		delete(state, n)
		if err := p.writeState(state); err != nil {
			return err
		}
	}
	return nil
}

// tagFor is where the registry keeps an image: its whole name is the repository's. Earlier appliances had no owners in
// it, and left out the stick's own domain.
func (p *Pusher) tagFor(full string) (name.Tag, error) {
	return name.NewTag(p.Registry + "/" + strings.TrimPrefix(full, assets.ImageDomain+"/"))
}

func (p *Pusher) readState() (map[string]servedImage, error) {
	state := map[string]servedImage{}
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

// writeState replaces the file as a whole.
func (p *Pusher) writeState(state map[string]servedImage) error {
	text, err := json.MarshalIndent(state, "", " ")
	if err != nil {
		return fmt.Errorf("write what was pushed: %w", err)
	}
	return atomicfile.Write(p.State, append(text, '\n'), 0o644)
}
