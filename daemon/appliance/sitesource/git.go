package sitesource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	fluxgit "github.com/fluxcd/pkg/git"
	"github.com/fluxcd/pkg/git/gogit"
	"github.com/fluxcd/pkg/git/repository"
	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	gitclient "github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
)

// noFolder is checked out in place of the work tree, which nobody needs.
const noFolder = ".firstlight-none"

// fetchGit reads the last commit of a branch with its history, in memory.
func fetchGit(ctx context.Context, g Git, r Request) (Answer, error) {
	u, err := url.Parse(g.URL)
	if err != nil {
		return Answer{}, fmt.Errorf("read address of the repository: %w", err)
	}
	if err := useTLS(g.CA); err != nil {
		return Answer{}, err
	}
	auth := &fluxgit.AuthOptions{Transport: fluxgit.TransportType(u.Scheme), Host: u.Host}
	var login *sshLogin
	switch {
	case auth.Transport == fluxgit.SSH:
		if login, err = useSSH(g, u, auth); err != nil {
			return Answer{}, err
		}
	case g.Password != "":
		auth.Username, auth.Password = g.Username, g.Password
	}

	store := memory.NewStorage()
	client, err := gogit.NewClient("/nonexistent", auth, gogit.WithStorer(store), gogit.WithWorkTreeFS(memfs.New()))
	if err != nil {
		return Answer{}, err
	}
	commit, err := client.Clone(ctx, g.URL, repository.CloneConfig{
		CheckoutStrategy:          repository.CheckoutStrategy{Branch: g.Branch},
		LastObservedCommit:        r.Known,
		SparseCheckoutDirectories: []string{noFolder},
	})
	if err != nil {
		return Answer{}, login.explain(err)
	}
	if commit == nil {
		return Answer{}, fmt.Errorf("the repository has no commit on branch %s", g.Branch)
	}

	answer := Answer{Revision: g.Branch + "@" + commit.Hash.Digest()}
	if !fluxgit.IsConcreteCommit(*commit) {
		answer.Revision = r.Known
		return answer, nil
	}
	if err := verifyCommit(commit, g); err != nil {
		answer.Refusal = err.Error()
		return answer, nil
	}

	head, err := object.GetCommit(store, plumbing.NewHash(commit.Hash.String()))
	if err != nil {
		return Answer{}, fmt.Errorf("read commit %s: %w", commit.Hash, err)
	}
	if answer.Refusal = checkDescent(store, head, r.Base); answer.Refusal != "" {
		return answer, nil
	}
	answer.Files, answer.Refusal, err = readTree(head, r.Path)
	return answer, err
}

// useTLS has all repositories with https prove who they are as newTLS says; go-git would trust the public authorities
// besides those of a CAFile. No redirect leads to where a password is sent in the clear.
func useTLS(ca string) error {
	config, err := newTLS(ca)
	if err != nil {
		return err
	}
	gitclient.InstallProtocol("https", githttp.NewClient(&http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if r.URL.Scheme != "https" {
				return fmt.Errorf("the server redirects to %s, without TLS", r.URL.Redacted())
			}
			return nil
		},
	}))
	return nil
}

// verifyCommit is nil if one of the keys has signed a commit, or none is given.
func verifyCommit(c *fluxgit.Commit, g Git) error {
	if len(g.OpenPGP)+len(g.SSH) == 0 {
		return nil
	}

	var err error
	switch {
	case c.IsSSHSigned() && len(g.SSH) > 0:
		_, err = c.VerifySSH(strings.Join(g.SSH, "\n"))
	case c.IsPGPSigned() && len(g.OpenPGP) > 0:
		_, err = c.VerifyPGP(g.OpenPGP...)
	case c.Signature == "":
		err = errors.New("it is not signed")
	default:
		err = errors.New("none of the keys is of the kind that signed it")
	}
	if err != nil {
		return fmt.Errorf("no key of appliance.follow.git.verify has signed it: %w; have it signed by one of them", err)
	}
	return nil
}

// checkDescent is why a commit must not follow the one that was applied; "" if it may. A history that was written again
// could bring back an old state of the site, with a good signature.
func checkDescent(store *memory.Storage, head *object.Commit, base string) string {
	_, hash, _ := strings.Cut(base, "@sha1:")
	if hash == "" || hash == head.Hash.String() {
		return ""
	}

	applied, err := object.GetCommit(store, plumbing.NewHash(hash))
	isAncestor := false
	if err == nil {
		isAncestor, err = applied.IsAncestor(head)
	}
	if err == nil && isAncestor {
		return ""
	}
	return fmt.Sprintf("history was rewritten: it does not descend from %s, which is applied; push a commit that does "+
		"(git merge --strategy=ours %.12s), or have it forgotten on the appliance: firstlightd source forget", shorten(base), hash)
}

// readTree reads a folder of a commit; refusal is why it cannot be applied.
func readTree(c *object.Commit, folder string) (all map[string][]byte, refusal string, err error) {
	tree, err := c.Tree()
	if err != nil {
		return nil, "", fmt.Errorf("read commit %s: %w", c.Hash, err)
	}
	if folder != "" {
		tree, err = tree.Tree(folder)
		if errors.Is(err, object.ErrDirectoryNotFound) || errors.Is(err, object.ErrEntryNotFound) {
			return nil, describeMissing(folder), nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("read folder %s of commit %s: %w", folder, c.Hash, err)
		}
	}

	var read files
	walker := object.NewTreeWalker(tree, true, nil)
	defer walker.Close()
	for listed := 0; refusal == ""; listed++ {
		name, entry, err := walker.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, "", fmt.Errorf("read commit %s: %w", c.Hash, err)
		}
		switch {
		case listed == maxListed: // trees in trees can be more than there are objects
			refusal = describeCrowd(folder)
		case entry.Mode == filemode.Dir, entry.Mode == filemode.Submodule, !isWanted(name):
		case entry.Mode != filemode.Regular && entry.Mode != filemode.Executable:
			refusal = name + " is a link; put the file itself in its place"
		default:
			f, err := tree.TreeEntryFile(&entry)
			if err == nil {
				err = read.add(name, f.Size, func() ([]byte, error) {
					text, err := f.Contents()
					return []byte(text), err
				})
			}
			if err != nil {
				refusal = err.Error()
			}
		}
	}
	if refusal == "" && len(read.all) == 0 {
		refusal = describeMissing(folder)
	}
	if refusal != "" {
		return nil, refusal, nil
	}
	return read.all, "", nil
}
