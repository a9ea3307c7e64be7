package api

import (
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

var reDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// form is what a multipart form holds of what is looked for. Its file is read and passed
// over, as in ICN: it has to be there and may be anything.
type form struct {
	metadata []byte
	file     bool
}

// readForm reads a multipart form, which has to come in so long, without keeping more than
// the record.
func readForm(w http.ResponseWriter, r *http.Request, within time.Duration) (f form, err error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(within)) // a connection that is gone reads no more anyway
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	r.Body = http.MaxBytesReader(w, r.Body, artifact.MaxForm)
	parts, err := r.MultipartReader()
	if err != nil {
		return f, newProblem(
			http.StatusUnprocessableEntity,
			"the request is no multipart/form-data; send a part metadata and a part file",
		)
	}

	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return f, nil
		}

		if err == nil {
			err = f.readPart(part)
		}

		if err != nil {
			return f, formError(err)
		}
	}
}

func (f *form) readPart(part *multipart.Part) (err error) {
	switch part.FormName() {
	case "metadata":
		f.metadata, err = io.ReadAll(io.LimitReader(part, artifact.MaxMetadata+1))
		if err == nil && len(f.metadata) > artifact.MaxMetadata {
			err = newProblem(
				http.StatusRequestEntityTooLarge, "the metadata have more than %d bytes", artifact.MaxMetadata,
			)
		}
	case "file":
		f.file = part.FileName() != ""
	}

	if err != nil {
		return err
	}

	_, err = io.Copy(io.Discard, part)
	return err
}

func formError(err error) error {
	var large *http.MaxBytesError
	var known artifact.Problem
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "the form did not come to its end")
	case errors.As(err, &large):
		return newProblem(
			http.StatusRequestEntityTooLarge,
			"the form has more than %d bytes; the bytes of an image are sent by PATCH", large.Limit,
		)
	}

	return newProblem(http.StatusUnprocessableEntity, "the multipart form cannot be read: %v", err)
}

// parseMetadata checks what was announced, in ICN's order, and with its words where it had some.
// k is the collection and scope of the path, and for PUT the name.
func (f form) parseMetadata(k artifact.Key, method string) (artifact.Key, artifact.Metadata, error) {
	var r artifact.Metadata
	no := func(status int, format string, args ...any) (artifact.Key, artifact.Metadata, error) {
		return k, r, newProblem(status, format, args...)
	}
	if len(strings.TrimSpace(string(f.metadata))) == 0 {
		return no(http.StatusBadRequest, "Empty body")
	}
	if err := json.Unmarshal(f.metadata, &r); err != nil {
		return no(http.StatusUnprocessableEntity, "the metadata are no record: %v", err)
	}

	switch {
	case r.ImageName == "":
		return no(http.StatusBadRequest, "Missing name in %s request", method)
	case r.Owner == "":
		return no(http.StatusBadRequest, "Missing Owner in %s request", method)
	case r.ImageLength <= 0:
		return no(http.StatusBadRequest, "Improper upload length")
	case !f.file:
		return no(http.StatusUnprocessableEntity, "Unable to process file: the form has no part file with a file name")
	case r.ImageLength > artifact.MaxLength:
		return no(
			http.StatusRequestEntityTooLarge, "image_length is %d; %d is the most", r.ImageLength,
			int64(artifact.MaxLength),
		)
	case r.Owner != k.Owner:
		return no(http.StatusUnprocessableEntity, "owner is %q in the metadata and %q in the path", r.Owner, k.Owner)
	case r.ClusterName != "" && r.ClusterName != k.Cluster:
		return no(
			http.StatusUnprocessableEntity, "cluster_name is %q in the metadata and %q in the path", r.ClusterName,
			k.Cluster,
		)
	case k.Name != "" && r.ImageName != k.Name:
		return no(
			http.StatusUnprocessableEntity, "image_name is %q in the metadata and %q in the path", r.ImageName, k.Name,
		)
	}

	r.ClusterName, k.Name, r.SHA256 = k.Cluster, r.ImageName, strings.ToLower(r.SHA256)
	if err := k.Check(); err != nil {
		return no(http.StatusUnprocessableEntity, "%v", err)
	}
	if r.SHA256 != "" && !reDigest.MatchString(r.SHA256) {
		return no(http.StatusUnprocessableEntity, "sha256 is not 64 hexadecimal digits")
	}

	return k, r, nil
}
