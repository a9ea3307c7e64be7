package s3api

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// failure is an answer that is no success, in one sentence.
type failure struct {
	XMLName  xml.Name `xml:"Error"`
	Code     string
	Message  string
	Resource string
	status   int
}

func (f *failure) Error() string { return f.Message }

func newFailure(status int, code, format string, args ...any) error {
	return &failure{status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// kinds are what the store refuses, by S3's codes where it has one.
var kinds = map[blobs.Kind]failure{
	blobs.NotFound:    {status: http.StatusNotFound, Code: "NoSuchKey"},
	blobs.Exists:      {status: http.StatusConflict, Code: "OperationAborted"},
	blobs.WrongLength: {status: http.StatusBadRequest, Code: "IncompleteBody"},
	blobs.Unfinished:  {status: http.StatusNotFound, Code: "NoSuchKey"},
	blobs.Busy:        {status: http.StatusConflict, Code: "OperationAborted"},
	blobs.InUse:       {status: http.StatusConflict, Code: "ObjectInUse"},
	blobs.Refused:     {status: http.StatusUnprocessableEntity, Code: "InvalidObject"},
	blobs.TooLarge:    {status: http.StatusRequestEntityTooLarge, Code: "QuotaExceeded"},
	blobs.Full:        {status: http.StatusInsufficientStorage, Code: "StorageFull"},
	blobs.Down:        {status: http.StatusServiceUnavailable, Code: "ServiceUnavailable"},
	blobs.Interrupted: {status: http.StatusConflict, Code: "OperationAborted"},
	blobs.Cut:         {status: http.StatusBadRequest, Code: "IncompleteBody"},
	blobs.Damaged:     {status: http.StatusConflict, Code: "InvalidObjectState"},
}

// failureOf is what is answered to an error.
func failureOf(err error) *failure {
	var f *failure
	var known *blobs.Error
	switch {
	case errors.As(err, &f): // also within a body that the store did not get to its end
		return f
	case errors.As(err, &known):
		if k, ok := kinds[known.Kind]; ok {
			return &failure{status: k.status, Code: k.Code, Message: known.Text}
		}
	}
	return &failure{
		status:  http.StatusInternalServerError,
		Code:    "InternalError",
		Message: "something went wrong; the log of the appliance says what",
	}
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	f := *failureOf(err)
	f.Resource = r.URL.Path
	if r.Method == http.MethodHead || f.status == http.StatusNotModified {
		w.WriteHeader(f.status)
		return
	}

	writeXML(w, f.status, f)
}

// writeXML answers with a document.
func writeXML(w http.ResponseWriter, status int, document any) {
	text, err := xml.Marshal(document)
	if err != nil {
		status, text = http.StatusInternalServerError, nil
	}

	text = append([]byte(xml.Header), text...)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that is gone
}

func requestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand
	return hex.EncodeToString(b[:])
}
