package s3api

import (
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

const (
	maxKeys      = 1000    // of one page, S3's own
	maxDocument  = 2 << 20 // octets of a document that is sent
	isoTime      = "2006-01-02T15:04:05.000Z"
	storageClass = "STANDARD"
)

func (s *Server) listBuckets(w http.ResponseWriter, _ *http.Request, c call) error {
	type bucket struct{ Name, CreationDate string }
	answer := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
		Owner   struct{ ID, DisplayName string }
		Buckets []bucket `xml:"Buckets>Bucket"`
	}{}
	answer.Owner.ID, answer.Owner.DisplayName = c.key.Owner, c.key.Owner
	for _, collection := range artifact.Collections() {
		answer.Buckets = append(answer.Buckets, bucket{collection.Bucket(), time.Unix(0, 0).UTC().Format(isoTime)})
	}

	writeXML(w, http.StatusOK, answer)
	return nil
}

func (s *Server) headBucket(w http.ResponseWriter, _ *http.Request, _ call) error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// createBucket: clients that make sure of a bucket are content with that.
func (s *Server) createBucket(http.ResponseWriter, *http.Request, call) error {
	return newFailure(http.StatusConflict, "BucketAlreadyOwnedByYou", "the bucket is there")
}

func (s *Server) bucketLocation(w http.ResponseWriter, _ *http.Request, _ call) error {
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ LocationConstraint"`
	}{})
	return nil
}

func (s *Server) bucketVersioning(w http.ResponseWriter, _ *http.Request, _ call) error {
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ VersioningConfiguration"`
	}{})
	return nil
}

// listing is what one page shows.
type listing struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name                  string
	Prefix                string
	Delimiter             string `xml:",omitempty"`
	Marker                *string
	NextMarker            string `xml:",omitempty"`
	StartAfter            string `xml:",omitempty"`
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	EncodingType          string `xml:",omitempty"`
	KeyCount              int
	MaxKeys               int
	IsTruncated           bool
	Contents              []listed
	CommonPrefixes        []commonPrefix
}

type listed struct {
	Key, LastModified, ETag string
	Size                    int64
	StorageClass            string
}

type commonPrefix struct{ Prefix string }

// listObjects lists the complete artifacts of one owner, which is the first part of the prefix, or else the key's.
func (s *Server) listObjects(w http.ResponseWriter, r *http.Request, c call) error {
	limit, err := parseLimit(c.query.Get("max-keys"))
	if err != nil {
		return err
	}

	prefix := c.query.Get("prefix")
	c.Owner = c.key.Owner
	if owner, _, named := strings.Cut(prefix, "/"); named {
		c.Owner = owner
	}
	if err := s.authorize(r.Context(), c, "list"); err != nil {
		return err
	}

	page := listing{Name: c.bucket, Prefix: prefix, Delimiter: c.query.Get("delimiter"), MaxKeys: limit}
	after, v2 := c.query.Get("marker"), c.query.Get("list-type") == "2"
	if v2 {
		page.ContinuationToken, page.StartAfter = c.query.Get("continuation-token"), c.query.Get("start-after")
		token, err := base64.RawURLEncoding.DecodeString(page.ContinuationToken)
		if err != nil {
			return newFailure(http.StatusBadRequest, "InvalidArgument", "the continuation token is none of ours")
		}
		after = cmp.Or(string(token), page.StartAfter)
	} else {
		page.Marker = &after
	}

	next := page.fill(c, after)
	page.IsTruncated = next != ""
	if v2 {
		page.NextContinuationToken = base64.RawURLEncoding.EncodeToString([]byte(next))
	} else {
		page.NextMarker = next
	}

	if c.query.Get("encoding-type") == "url" {
		page.escape()
	}

	writeXML(w, http.StatusOK, page)
	return nil
}

func parseLimit(text string) (int, error) {
	if text == "" {
		return maxKeys, nil
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, newFailure(http.StatusBadRequest, "InvalidArgument", "max-keys %q is not a number", text)
	}

	return min(n, maxKeys), nil
}

// fill lists what comes after a name, and returns the last name if there is more.
func (p *listing) fill(c call, after string) (next string) {
	records := slices.DeleteFunc(c.store.Complete(c.Collection), func(r artifact.Metadata) bool {
		return r.Owner != c.Owner || !strings.HasPrefix(objectName(r), p.Prefix)
	})
	slices.SortFunc(records, func(a, b artifact.Metadata) int { return cmp.Compare(objectName(a), objectName(b)) })
	last := ""
	for _, r := range records {
		name := objectName(r)
		below, rest, folded := name, "", false
		if p.Delimiter != "" {
			below, rest, folded = strings.Cut(name[len(p.Prefix):], p.Delimiter)
			below = p.Prefix + below + p.Delimiter
		}
		_ = rest
		if folded {
			name = below
		}
		if name <= after || folded && name == last {
			continue
		}
		if p.KeyCount == p.MaxKeys {
			return last
		}

		p.KeyCount, last = p.KeyCount+1, name
		if folded {
			p.CommonPrefixes = append(p.CommonPrefixes, commonPrefix{name})
			continue
		}
		p.Contents = append(p.Contents, listed{name, r.Updated.UTC().Format(isoTime), etag(r), r.ImageLength, storageClass})
	}

	return ""
}

// escape writes names as clients ask for that do not trust XML with them.
func (p *listing) escape() {
	p.EncodingType = "url"
	for _, text := range []*string{&p.Prefix, &p.Delimiter, &p.StartAfter, &p.NextMarker} {
		*text = url.QueryEscape(*text)
	}
	for i := range p.Contents {
		p.Contents[i].Key = url.QueryEscape(p.Contents[i].Key)
	}
	for i := range p.CommonPrefixes {
		p.CommonPrefixes[i].Prefix = url.QueryEscape(p.CommonPrefixes[i].Prefix)
	}
}

// objectName is the object's name of a record.
func objectName(r artifact.Metadata) string { return r.Owner + "/" + r.ClusterName + "/" + r.ImageName }

// etag is the sha256: it changes with the content, and no client takes it for an MD5.
func etag(r artifact.Metadata) string { return `"` + r.SHA256 + `"` }

// deleteObjects removes up to a thousand objects, each by itself.
func (s *Server) deleteObjects(w http.ResponseWriter, r *http.Request, c call) error {
	var wanted struct {
		Quiet  bool
		Object []struct{ Key string }
	}
	if err := c.readXML(&wanted); err != nil {
		return err
	}
	if len(wanted.Object) > maxKeys {
		return newFailure(http.StatusBadRequest, "MalformedXML", "there are %d objects; %d are the most", len(wanted.Object), maxKeys)
	}

	type removed struct{ Key string }
	type refused struct{ Key, Code, Message string }
	answer := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ DeleteResult"`
		Deleted []removed
		Error   []refused
	}{}
	for _, o := range wanted.Object {
		received := s.Now()
		err := s.removeOne(r, c, o.Key)
		named := c
		named.Key, _ = parseKey(c.Collection, o.Key) // if it is none, that is why it was refused
		s.recordChange(r, named, "DeleteObject", received, err)
		switch {
		case err != nil:
			f := failureOf(err)
			answer.Error = append(answer.Error, refused{o.Key, f.Code, f.Message})
		case !wanted.Quiet:
			answer.Deleted = append(answer.Deleted, removed{o.Key})
		}
	}

	writeXML(w, http.StatusOK, answer)
	return nil
}

// readXML reads the document of a request.
func (c call) readXML(into any) error {
	text, err := io.ReadAll(io.LimitReader(c.body, maxDocument+1))
	if err != nil {
		return err
	}
	if len(text) > maxDocument {
		return newFailure(http.StatusRequestEntityTooLarge, "EntityTooLarge", "the document has more than %d bytes", maxDocument)
	}
	if err := xml.Unmarshal(text, into); err != nil {
		return newFailure(http.StatusBadRequest, "MalformedXML", "the document cannot be read: %v", err)
	}

	return nil
}
