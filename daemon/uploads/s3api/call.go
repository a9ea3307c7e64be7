package s3api

import (
	"net/http"
	"net/url"
	"strings"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

const group = artifact.Group

// call is what a handler is given of a request.
type call struct {
	artifact.Key // as far as the path names one
	operation    operation
	bucket       string
	query        url.Values
	key          Credential
	body         *payload
	store        *blobs.Store
}

// operation is one request of S3 that is served: the first row that fits.
type operation struct {
	method string
	on     string // service, bucket or object
	query  string // a parameter that it has; "": none of those below
	name   string
	handle func(*Server, http.ResponseWriter, *http.Request, call) error
}

// operations are all that is served.
func operations() []operation {
	return []operation{
		{"GET", "service", "", "ListBuckets", (*Server).listBuckets},
		{"HEAD", "bucket", "", "HeadBucket", (*Server).headBucket},
		{"PUT", "bucket", "", "CreateBucket", (*Server).createBucket},
		{"GET", "bucket", "location", "GetBucketLocation", (*Server).bucketLocation},
		{"GET", "bucket", "versioning", "GetBucketVersioning", (*Server).bucketVersioning},
		{"GET", "bucket", "uploads", "ListMultipartUploads", (*Server).listUploads},
		{"GET", "bucket", "", "ListObjects", (*Server).listObjects},
		{"POST", "bucket", "delete", "DeleteObjects", (*Server).deleteObjects},
		{"GET", "object", "uploadId", "ListParts", (*Server).listParts},
		{"GET", "object", "", "GetObject", (*Server).getObject},
		{"HEAD", "object", "", "HeadObject", (*Server).getObject},
		{"PUT", "object", "uploadId", "UploadPart", (*Server).uploadPart},
		{"PUT", "object", "", "PutObject", (*Server).putObject},
		{"POST", "object", "uploads", "CreateMultipartUpload", (*Server).createUpload},
		{"POST", "object", "uploadId", "CompleteMultipartUpload", (*Server).completeUpload},
		{"DELETE", "object", "uploadId", "AbortMultipartUpload", (*Server).abortUpload},
		{"DELETE", "object", "", "DeleteObject", (*Server).deleteObject},
	}
}

// served are the parameters that do not ask for something else than the plain operation.
var served = map[string]bool{
	"list-type": true, "prefix": true, "delimiter": true, "max-keys": true, "marker": true, "start-after": true,
	"continuation-token": true, "encoding-type": true, "fetch-owner": true, "uploadId": true, "partNumber": true,
	"max-parts": true, "part-number-marker": true, "max-uploads": true, "key-marker": true, "upload-id-marker": true,
	"location": true, "versioning": true, "uploads": true, "delete": true, "x-id": true, "metadata": true,
}

// parseCall finds what is asked of which artifact.
func parseCall(r *http.Request) (c call, err error) {
	if c.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return c, newFailure(http.StatusBadRequest, "InvalidRequest", "the query cannot be read")
	}

	bucket, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	on := "object"
	switch {
	case bucket == "":
		on = "service"
	case object == "":
		on = "bucket"
	}

	if c.operation, err = findOperation(r, on, c.query); err != nil {
		return c, err
	}

	c.bucket = bucket
	for _, collection := range artifact.Collections() {
		if collection.Bucket() == bucket {
			c.Collection = collection
		}
	}
	if on != "service" && c.Collection == "" {
		return c, newFailure(http.StatusNotFound, "NoSuchBucket", "there is no bucket %q; there are %s", bucket, bucketNames())
	}

	if on != "object" {
		return c, nil
	}

	c.Key, err = parseKey(c.Collection, object)
	return c, err
}

func findOperation(r *http.Request, on string, query url.Values) (operation, error) {
	for name := range query {
		if !served[name] {
			return operation{}, newFailure(http.StatusNotImplemented, "NotImplemented", "%q is not served; docs/artifacts.md lists what is", name)
		}
	}
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		return operation{}, newFailure(http.StatusNotImplemented, "NotImplemented", "objects are not copied; read and store it")
	}

	for _, o := range operations() {
		if o.method == r.Method && o.on == on && (o.query == "" || query.Has(o.query)) {
			return o, nil
		}
	}
	return operation{}, newFailure(http.StatusMethodNotAllowed, "MethodNotAllowed", "%s of a %s is not served", r.Method, on)
}

// parseKey reads OWNER/CLUSTER/NAME.
func parseKey(c artifact.Collection, object string) (artifact.Key, error) {
	words := strings.SplitN(object, "/", 3)
	if len(words) != 3 {
		return artifact.Key{}, newFailure(http.StatusBadRequest, "InvalidArgument", "an object is called OWNER/CLUSTER/NAME; %q is not", object)
	}

	k := artifact.Key{Collection: c, Owner: words[0], Cluster: words[1], Name: words[2]}
	if err := k.Check(); err != nil {
		return k, newFailure(http.StatusBadRequest, "InvalidArgument", "%v", err)
	}

	return k, nil
}

func bucketNames() string {
	var names []string
	for _, c := range artifact.Collections() {
		names = append(names, c.Bucket())
	}
	return strings.Join(names, ", ")
}
