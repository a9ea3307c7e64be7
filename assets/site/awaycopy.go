package site

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"filippo.io/age"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// AwayCopy is where copies of what cannot be made again go, and who can open them.
type AwayCopy struct {
	Recipients []Recipient    `yaml:"recipients" required:"true" doc:"The public half of each recovery key that opens them; firstlight keys new makes a key."`
	Every      Duration       `yaml:"every" default:"24h" doc:"How often one is made; at least 5m."`
	Store      *AwayCopyStore `yaml:"store" required:"true" doc:"The S3 store that they go to, as NAME/TIME.age, NAME being the site's. None is removed there."`
}

// AwayCopyStore is an S3 store that is away from the appliance.
type AwayCopyStore struct {
	Endpoint  URL          `yaml:"endpoint" required:"true" doc:"http(s)://HOST[:PORT]."`
	Region    string       `yaml:"region" pattern:"^[A-Za-z0-9-]{1,64}$" hint:"letters, digits and '-'" default:"us-east-1" doc:"Region of the store."`
	Bucket    string       `yaml:"bucket" required:"true" pattern:"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$" hint:"3 to 63 of a-z, 0-9, '-' and '.'" doc:"Bucket, which must be there."`
	AccessKey string       `yaml:"accessKey" required:"true" doc:"The appliance's user there; it needs no more than the right to write."`
	SecretKey Secret       `yaml:"secretKey" required:"true" doc:"The key that belongs to accessKey."`
	CA        Certificates `yaml:"ca" doc:"Authority of the store's certificate, PEM; https needs it."`
}

// Recipient is the public half of a recovery key, age1….
type Recipient string

func (r Recipient) String() string { return string(r) }

// ParseText reads one; a recovery key itself is refused with a sentence of its own.
func (r *Recipient) ParseText(s string) error {
	if strings.HasPrefix(strings.ToUpper(s), "AGE-SECRET-KEY-") {
		return errors.New("this is a recovery key, which must not be on the appliance; put its public half here, age1…")
	}
	if _, err := age.ParseX25519Recipient(s); err != nil {
		return fmt.Errorf("%s is not the public half of a recovery key; write age1… as firstlight keys new prints it", yamldoc.Quote(s))
	}

	*r = Recipient(s)
	return nil
}

// checkAwayCopy checks what the parts of the section mean together.
func (r *reader) checkAwayCopy(a *AwayCopy) {
	if a == nil {
		return
	}
	if a.Every != 0 && time.Duration(a.Every) < 5*time.Minute {
		r.Report("awayCopy.every", "each is all that cannot be made again; use 5m or more")
	}
	if a.Store != nil {
		r.checkStore("awayCopy.store", a.Store.Endpoint, a.Store.CA)
	}
}

// checkStore checks where an S3 store is, and by which certificate it is known.
func (r *reader) checkStore(at string, endpoint URL, ca Certificates) {
	if endpoint == "" {
		return
	}

	u, err := url.Parse(string(endpoint))
	switch {
	case err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		r.Report(
			at+".endpoint", "%s has a path; write the store's host and port alone, such as https://s3.example:9000",
			yamldoc.Quote(string(endpoint)),
		)
	case u.Scheme == "https" && ca == "":
		r.Report(at, "nothing tells whose certificate to trust; add ca")
	case u.Scheme == "http" && ca != "":
		r.Report(at+".ca", "there is no certificate with http; use https, or remove the line")
	}
}
