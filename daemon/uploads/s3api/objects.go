package s3api

import (
	"errors"
	"net/http"
	"strings"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// getObject answers GET and HEAD, with ranges and conditions.
func (s *Server) getObject(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, "get"); err != nil {
		return err
	}

	release, err := s.acquireTransfer()
	if err != nil {
		return err
	}
	defer release()

	content, have, err := c.store.Content(r.Context(), c.Key)
	if err != nil {
		return err
	}
	defer content.Close()

	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range") // S3 has one range
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", etag(have))
	held := &heldFailure{ResponseWriter: w}
	http.ServeContent(held, r, "", have.Updated, content)
	switch held.status {
	case 0:
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return newFailure(held.status, "InvalidRange", "there are %d bytes; none of them is in the range", have.ImageLength)
	case http.StatusPreconditionFailed:
		return newFailure(held.status, "PreconditionFailed", "the object is another one than the request's condition says")
	}
	return newFailure(held.status, "InternalError", "the store does not give the object")
}

// heldFailure keeps back what net/http writes of a failure, so that it can be said as S3 says it.
type heldFailure struct {
	http.ResponseWriter
	status int
}

func (h *heldFailure) WriteHeader(status int) {
	if h.status = status; status < 400 {
		h.status = 0
		h.ResponseWriter.WriteHeader(status)
	}
}

func (h *heldFailure) Write(b []byte) (int, error) {
	if h.status != 0 {
		return len(b), nil
	}
	return h.ResponseWriter.Write(b)
}

// putVerbs are the rights that storing an object needs, which are those of the same by REST.
func putVerbs(c call) []string {
	if _, err := c.store.Get(c.Key); err == nil {
		return []string{"update", "patch"}
	}
	return []string{"create", "patch"}
}

func (s *Server) putObject(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, putVerbs(c)...); err != nil {
		return err
	}
	if err := c.checkLength(artifact.MaxLength); err != nil {
		return err
	}
	if err := c.checkConditions(r); err != nil {
		return err
	}

	release, err := s.acquireTransfer()
	if err != nil {
		return err
	}
	defer release()

	r2 := artifact.Metadata{
		Type: typeOf(c.Collection), ImageLength: c.body.length, SHA256: c.body.announcedSHA256(),
	}
	made, err := c.store.Put(r.Context(), c.Key, r2, 0, c.body)
	if err != nil {
		return err
	}

	w.Header().Set("ETag", etag(made))
	w.WriteHeader(http.StatusOK)
	return nil
}

// typeOf is the record's word for what S3 does not say.
func typeOf(c artifact.Collection) string {
	return map[artifact.Collection]string{artifact.Binary: "binary", artifact.Container: "container", artifact.OS: "os"}[c]
}

// checkLength refuses what cannot be an artifact, or a part of one.
func (c call) checkLength(most int64) error {
	switch n := c.body.length; {
	case n < 0:
		return newFailure(http.StatusLengthRequired, "MissingContentLength", "say how long the body is")
	case n == 0:
		return newFailure(http.StatusBadRequest, "EntityTooSmall", "an artifact has at least one byte")
	case n > most:
		return newFailure(http.StatusRequestEntityTooLarge, "EntityTooLarge", "the body has %d bytes; %d are the most", n, most)
	}
	return nil
}

// checkConditions serves If-None-Match: *, by which a client stores only what is not there.
func (c call) checkConditions(r *http.Request) error {
	_, err := c.store.Get(c.Key)
	if r.Header.Get("If-None-Match") == "*" && err == nil {
		return newFailure(http.StatusPreconditionFailed, "PreconditionFailed", "there is an object of that name")
	}
	return nil
}

func (s *Server) deleteObject(w http.ResponseWriter, r *http.Request, c call) error {
	if err := s.remove(r, c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// removeOne removes an object by its name.
func (s *Server) removeOne(r *http.Request, c call, object string) (err error) {
	if c.Key, err = parseKey(c.Collection, object); err != nil {
		return err
	}
	return s.remove(r, c)
}

// remove removes an object; what is not there is removed, as S3 has it.
func (s *Server) remove(r *http.Request, c call) error {
	if err := s.authorize(r.Context(), c, "delete"); err != nil {
		return err
	}

	err := c.store.Remove(r.Context(), c.Key)
	var known *blobs.Error
	if errors.As(err, &known) && known.Kind == blobs.NotFound {
		return nil
	}

	return err
}
