package site

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Follow is the source from which the appliance takes its site document and objects of its API.
type Follow struct {
	Git      *GitRepository `yaml:"git" doc:"A branch of a Git repository."`
	Bucket   *Bucket        `yaml:"bucket" doc:"A bucket of an S3 store, in place of git."`
	Path     string         `yaml:"path" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$" hint:"names of folders with '/' between them, such as sites/rack-7" default:"the root of the source" doc:"Folder there of this appliance."`
	Interval Duration       `yaml:"interval" default:"1m" doc:"How often the source is asked for a new revision; 10s to 24h."`
}

// GitRepository is a branch that is followed.
type GitRepository struct {
	URL        GitURL       `yaml:"url" required:"true" doc:"https://HOST/PATH or ssh://USER@HOST/PATH. http:// is for commits that verify checks, and without a password."`
	Branch     string       `yaml:"branch" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$" hint:"a branch such as main or release/1" default:"main" doc:"Branch that is followed."`
	Username   string       `yaml:"username" default:"that of url, else git" doc:"The appliance's user there."`
	Password   Secret       `yaml:"password" doc:"Its password or token, with https; it needs no more than the right to read."`
	PrivateKey PrivateKey   `yaml:"privateKey" doc:"The key that logs in with ssh, OpenSSH's form or PEM, without a passphrase; it needs no more than the right to read."`
	KnownHosts []KnownHost  `yaml:"knownHosts" doc:"The keys that the host may have with ssh, each a line that ssh-keyscan prints, or of known_hosts, in quotes. A host with another one is not logged in to."`
	CA         Certificates `yaml:"ca" doc:"Authority of the server's certificate, PEM, in place of the public ones."`
	Verify     []CommitKey  `yaml:"verify" doc:"Who signs commits: SSH public keys, or OpenPGP public keys in armor. With one, a branch whose last commit none of them has signed is not followed."`
}

// Bucket is a bucket that is followed. Nothing in it is signed: who may write there decides what the appliance does.
type Bucket struct {
	Endpoint  URL          `yaml:"endpoint" required:"true" doc:"https://HOST[:PORT]."`
	Region    string       `yaml:"region" pattern:"^[A-Za-z0-9-]{1,64}$" hint:"letters, digits and '-'" default:"us-east-1" doc:"Region of the store."`
	Bucket    string       `yaml:"bucket" required:"true" pattern:"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$" hint:"3 to 63 of a-z, 0-9, '-' and '.'" doc:"Name of the bucket."`
	AccessKey string       `yaml:"accessKey" required:"true" doc:"The appliance's user there; it needs no more than the rights to list and to read."`
	SecretKey Secret       `yaml:"secretKey" required:"true" doc:"The key that belongs to accessKey."`
	CA        Certificates `yaml:"ca" doc:"Authority of the store's certificate, PEM; it must be given."`
}

// Address is where the source is, without credentials: the URL of the repository, or ENDPOINT/BUCKET.
func (f *Follow) Address() string {
	if f.Bucket != nil {
		return strings.TrimSuffix(string(f.Bucket.Endpoint), "/") + "/" + f.Bucket.Bucket
	}
	return string(f.Git.URL)
}

func (f *Follow) withDefaults() *Follow {
	if f == nil {
		return nil
	}

	d := *f
	d.Interval = cmp.Or(d.Interval, Duration(time.Minute))
	if d.Git != nil {
		d.Git = cloneOrZero(d.Git)
		d.Git.Branch = cmp.Or(d.Git.Branch, "main")
		d.Git.Username = d.Git.user()
	}
	if d.Bucket != nil {
		d.Bucket = cloneOrZero(d.Bucket)
		d.Bucket.Region = cmp.Or(d.Bucket.Region, "us-east-1")
	}
	return &d
}

// checkFollow checks what the parts of the section mean together.
func (r *reader) checkFollow(f *Follow) {
	const at = "appliance.follow"
	if f == nil {
		return
	}

	switch {
	case f.Git == nil && f.Bucket == nil:
		r.Report(at, "there is no source to follow; add git or bucket, or take the section out")
	case f.Git != nil && f.Bucket != nil:
		r.Report(at+".bucket", "git is given as well; keep one of the two")
	}
	if i := time.Duration(f.Interval); i != 0 && (i < 10*time.Second || i > 24*time.Hour) {
		r.Report(at+".interval", "%s is out of bounds; use 10s to 24h", f.Interval)
	}

	if f.Git != nil {
		r.checkGitRepository(at+".git", f.Git)
	}
	if b := f.Bucket; b != nil {
		r.checkStore(at+".bucket", b.Endpoint, b.CA)
		if strings.HasPrefix(strings.ToLower(string(b.Endpoint)), "http:") {
			r.Report(at+".bucket.endpoint", "with http, whoever is on the way decides what this appliance does; use https")
		}
	}
}

func (r *reader) checkGitRepository(at string, g *GitRepository) {
	scheme, _ := g.URL.parts()
	if scheme != "" {
		r.checkGitLogin(at, g)
	}
	if scheme != "http" {
		return
	}
	switch {
	case !g.Password.IsZero():
		r.Report(at+".password", "with http it would be sent in the clear; use https, or take it out")
	case g.CA != "":
		r.Report(at+".ca", "there is no certificate with http; use https, or remove the line")
	case len(g.Verify) == 0:
		r.Report(at+".url", "with http, whoever is on the way decides what this appliance does; use https, or add verify")
	}
}

// GitURL is where a repository is: https://HOST/PATH, http:// or ssh://USER@HOST/PATH.
type GitURL string

func (u GitURL) String() string { return string(u) }

// shortForm is how Git takes an address by SSH in short.
var shortForm = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+):/*([!-.0-?A-~][!-?A-~]*)$`)

// ParseText reads one without credentials, which are secrets and have fields of their own.
func (u *GitURL) ParseText(s string) error {
	if short := shortForm.FindStringSubmatch(s); short != nil && !strings.Contains(s, "://") {
		return fmt.Errorf("the short form of an address is not read; write ssh://%s%s/%s", short[1], short[2], short[3])
	}

	v, err := url.Parse(s)
	if err != nil || v.Host == "" || !slices.Contains([]string{"http", "https", "ssh"}, v.Scheme) || v.RawQuery != "" ||
		v.Fragment != "" {
		return errors.New("this is not an address of a repository; use https://HOST/PATH or ssh://USER@HOST/PATH")
	}
	_, hasPassword := v.User.Password()
	switch {
	case v.Scheme == "ssh" && hasPassword:
		return errors.New("a password does not belong into an address, and ssh takes none here; use privateKey")
	case v.Scheme == "ssh" && (v.Hostname() == "" || strings.Trim(v.Path, "/") == ""):
		return errors.New("it does not say which repository; use ssh://USER@HOST/PATH")
	case v.Scheme != "ssh" && v.User != nil:
		return errors.New("credentials do not belong into an address; use username and password")
	}

	*u = GitURL(s)
	return nil
}

// CommitKey is the public half of a key that signs commits: a line as in authorized_keys, or OpenPGP keys in armor.
type CommitKey string

const pgpHead = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

func (k CommitKey) String() string { return string(k) }

// IsOpenPGP reports whether the key is one of OpenPGP; otherwise it is one of SSH.
func (k CommitKey) IsOpenPGP() bool { return strings.HasPrefix(string(k), pgpHead) }

// ParseText reads one; a private key is refused with a sentence of its own.
func (k *CommitKey) ParseText(s string) error {
	s = strings.TrimSpace(s)
	key := CommitKey(s)
	switch {
	case strings.Contains(s, "PRIVATE KEY"):
		return errors.New("this is a private key, which must not be on the stick; put its public half here, and replace the pair")
	case key.IsOpenPGP():
		if _, err := openpgp.ReadArmoredKeyRing(strings.NewReader(s)); err != nil {
			return errors.New("this is no OpenPGP public key; paste what gpg --armor --export prints")
		}
	default:
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s)); err != nil || !yamldoc.IsPrintable(s) {
			return fmt.Errorf("%s is no SSH public key and no OpenPGP one; paste the one line of a file such as "+
				"id_ed25519.pub, or what gpg --armor --export prints", yamldoc.Quote(s))
		}
	}

	*k = key
	return nil
}
