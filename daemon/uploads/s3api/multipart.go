package s3api

import (
	"context"
	"encoding/xml"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// Completing an upload writes all of it once more, which takes long for some: the client is shown that it is at work.
const (
	completeQuietly = 5 * time.Second  // then the answer begins
	completeBeat    = 10 * time.Second // and a blank follows so often
	completeMemory  = 10 * time.Minute // a client whose connection was cut may ask again for so long
)

func (s *Server) createUpload(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, putVerbs(c)...); err != nil {
		return err
	}

	id, err := s.Parts.begin(c.Key)
	if err != nil {
		return err
	}

	writeXML(w, http.StatusOK, struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ InitiateMultipartUploadResult"`
		Bucket, Key, UploadId string
	}{Bucket: c.bucket, Key: c.Object(), UploadId: id})
	return nil
}

func (s *Server) uploadPart(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, "patch"); err != nil {
		return err
	}

	number, err := strconv.Atoi(c.query.Get("partNumber"))
	if err != nil || number < 1 || number > blobs.MaxParts {
		return newFailure(http.StatusBadRequest, "InvalidArgument", "partNumber is not a number from 1 to %d", blobs.MaxParts)
	}
	if err := c.checkLength(maxPart); err != nil {
		return err
	}

	u, err := s.Parts.find(c.query.Get("uploadId"), c.Key)
	if err != nil {
		return err
	}

	release, err := s.acquireTransfer()
	if err != nil {
		return err
	}
	defer release()

	sum, err := s.receivePart(c, u, number)
	if err != nil {
		return err
	}

	w.Header().Set("ETag", `"`+sum+`"`)
	w.WriteHeader(http.StatusOK)
	return nil
}

// receivePart counts a part before it comes, so that all that come at once stay below the quota.
func (s *Server) receivePart(c call, u *partial, number int) (sum string, err error) {
	size := c.body.length
	if err := s.Parts.count(u, size, 1); err != nil {
		return "", err
	}

	if err = c.store.CheckQuota(c.Owner, 0); err == nil {
		err = c.store.CheckRoom(size)
	}
	if err == nil {
		sum, err = s.Parts.store(u, number, size, c.body)
	}
	if err != nil {
		_ = s.Parts.count(u, -size, -1) // it never refuses less
	}

	return sum, err
}

func (s *Server) abortUpload(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, "patch"); err != nil {
		return err
	}

	u, err := s.Parts.find(c.query.Get("uploadId"), c.Key)
	if err != nil {
		return err
	}

	s.Parts.remove(u.id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listParts(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, "get"); err != nil {
		return err
	}

	u, err := s.Parts.find(c.query.Get("uploadId"), c.Key)
	if err != nil {
		return err
	}

	parts, err := s.Parts.list(u.id)
	if err != nil {
		return err
	}

	type listed struct {
		PartNumber         int
		LastModified, ETag string
		Size               int64
	}
	answer := struct {
		XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListPartsResult"`
		Bucket, Key, UploadId string
		MaxParts              int
		PartNumberMarker      int
		NextPartNumberMarker  int
		IsTruncated           bool
		Part                  []listed
	}{Bucket: c.bucket, Key: c.Object(), UploadId: u.id, MaxParts: maxKeys}
	answer.PartNumberMarker, _ = strconv.Atoi(c.query.Get("part-number-marker")) // none is 0
	for _, p := range parts {
		if p.number <= answer.PartNumberMarker {
			continue
		}
		if answer.IsTruncated = len(answer.Part) == maxKeys; answer.IsTruncated {
			break
		}
		answer.NextPartNumberMarker = p.number
		answer.Part = append(answer.Part, listed{p.number, p.stored.UTC().Format(isoTime), `"` + p.sum + `"`, p.size})
	}

	writeXML(w, http.StatusOK, answer)
	return nil
}

func (s *Server) listUploads(w http.ResponseWriter, r *http.Request, c call) error {
	prefix := c.query.Get("prefix")
	c.Owner = c.key.Owner
	if owner, _, named := strings.Cut(prefix, "/"); named {
		c.Owner = owner
	}
	if err := s.authorize(r.Context(), c, "list"); err != nil {
		return err
	}

	type listed struct{ Key, UploadId, Initiated, StorageClass string }
	answer := struct {
		XMLName        xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListMultipartUploadsResult"`
		Bucket, Prefix string
		MaxUploads     int
		IsTruncated    bool
		Upload         []listed
	}{Bucket: c.bucket, Prefix: prefix, MaxUploads: maxKeys}
	for _, u := range s.Parts.uploadsOf(c.Collection, c.Owner) {
		if strings.HasPrefix(u.key.Object(), prefix) {
			answer.Upload = append(answer.Upload, listed{u.key.Object(), u.id, u.begun.UTC().Format(isoTime), storageClass})
		}
	}

	writeXML(w, http.StatusOK, answer)
	return nil
}

// completion is the end of one upload, which a client may wait for more than once.
type completion struct {
	done   chan struct{}
	answer any
	err    error
}

type completed struct {
	XMLName           xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUploadResult"`
	Location          string
	Bucket, Key, ETag string
}

func (s *Server) completeUpload(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, putVerbs(c)...); err != nil {
		return err
	}

	var wanted struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := c.readXML(&wanted); err != nil {
		return err
	}

	id := c.query.Get("uploadId")
	s.mu.Lock()
	end := s.completed[id]
	s.mu.Unlock()
	if end == nil {
		u, err := s.Parts.find(id, c.Key)
		if err != nil {
			return err
		}

		var names []part
		for _, p := range wanted.Part {
			names = append(names, part{number: p.PartNumber, sum: strings.Trim(p.ETag, `"`)})
		}
		chosen, err := s.Parts.choose(u, names)
		if err != nil {
			return err
		}
		end = s.assemble(r, c, u, chosen)
	}

	return waitForCompletion(w, r, end)
}

// choose finds the parts that a client names, in their order.
func (p *Parts) choose(u *partial, names []part) ([]part, error) {
	all, err := p.list(u.id)
	if err != nil {
		return nil, err
	}

	there := map[part]part{}
	for _, one := range all {
		there[part{number: one.number, sum: one.sum}] = one
	}

	var chosen []part
	last := 0
	for _, n := range names {
		one, ok := there[n]
		switch {
		case !ok:
			return nil, newFailure(http.StatusBadRequest, "InvalidPart", "part %d with that ETag is not there", n.number)
		case n.number <= last:
			return nil, newFailure(http.StatusBadRequest, "InvalidPartOrder", "the parts are not in the order of their numbers")
		}
		chosen, last = append(chosen, one), n.number
	}

	if len(chosen) == 0 {
		return nil, newFailure(http.StatusBadRequest, "MalformedXML", "no part is named")
	}

	return chosen, nil
}

// assemble begins to make the parts one artifact, unless that is under way.
func (s *Server) assemble(r *http.Request, c call, u *partial, chosen []part) *completion {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.completed[u.id]; end != nil {
		return end
	}

	end := &completion{done: make(chan struct{})}
	s.completed[u.id] = end
	ctx := context.WithoutCancel(r.Context()) // a client that hangs up may ask again
	go func() {
		end.answer, end.err = s.put(ctx, c, u, chosen)
		close(end.done)
		forget := func() {
			s.mu.Lock()
			delete(s.completed, u.id)
			s.mu.Unlock()
		}
		if end.err != nil {
			forget()
			return
		}

		s.Parts.remove(u.id)
		time.AfterFunc(completeMemory, forget)
	}()

	return end
}

func (s *Server) put(ctx context.Context, c call, u *partial, chosen []part) (any, error) {
	length, body := int64(0), &partsReader{}
	defer body.Close()
	for _, p := range chosen {
		length += p.size
		body.paths = append(body.paths, filepath.Join(s.Parts.Dir, u.id, strconv.Itoa(p.number)+"-"+p.sum))
	}

	made, err := c.store.Put(ctx, c.Key, artifact.Metadata{Type: typeOf(c.Collection), ImageLength: length}, u.octets, body)
	if err != nil {
		return nil, err
	}

	return completed{Location: "/" + c.bucket + "/" + c.Object(), Bucket: c.bucket, Key: c.Object(), ETag: etag(made)}, nil
}

// waitForCompletion answers when it is done. After a while the answer begins, with blanks; then a failure is in it.
func waitForCompletion(w http.ResponseWriter, r *http.Request, end *completion) error {
	select {
	case <-end.done:
		if end.err == nil {
			writeXML(w, http.StatusOK, end.answer)
		}
		return end.err
	case <-time.After(completeQuietly):
	}

	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(xml.Header)) // a client that is gone is noticed below
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return nil
		case <-time.After(completeBeat):
			_, _ = w.Write([]byte(" "))
			continue
		case <-end.done:
		}

		document := end.answer
		if end.err != nil {
			document = *failureOf(end.err)
		}
		text, _ := xml.Marshal(document) // structs of strings
		_, _ = w.Write(text)
		return nil
	}
}
