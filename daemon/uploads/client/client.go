// Package client speaks to the appliance's REST API for artifacts: it sends and fetches
// files so that a cut costs nothing but what was under way, and checks what arrived. It
// knows of the appliance nothing but the contract.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

// Client asks one appliance. Its errors are, or wrap, an artifact.Problem if the appliance
// refused.
type Client struct {
	URL          string        // https://HOST:9015
	HTTP         *http.Client  // trusts the appliance; may have a client certificate
	Token        string        // "" sends none
	StallTimeout time.Duration // a transfer is tried again until nothing moved for so long; 0 is five minutes

	Overwrite bool // Fetch replaces a file that holds something else
}

const (
	defaultStallTimeout = 5 * time.Minute
	stall               = 90 * time.Second // a transfer of which nothing moves is cut and tried again
	answerMax           = 64 << 20         // octets of an answer that is JSON
)

// Metadata reads a record.
func (c Client) Metadata(ctx context.Context, k artifact.Key) (artifact.Metadata, error) {
	var r artifact.Metadata
	return r, c.doJSON(ctx, http.MethodGet, k.Path(), nil, "", http.StatusOK, &r)
}

// List reads all records of a collection, page by page.
func (c Client) List(
	ctx context.Context,
	collection artifact.Collection,
	owner, cluster string,
) ([]artifact.Metadata, error) {
	all := []artifact.Metadata{}
	query := url.Values{"limit": {fmt.Sprint(artifact.MaxPage)}}
	for {
		var page artifact.List
		path := artifact.CollectionPath(collection, owner, cluster) + "?" + query.Encode()
		if err := c.doJSON(ctx, http.MethodGet, path, nil, "", http.StatusOK, &page); err != nil {
			return nil, err
		}

		all = append(all, page.Items...)
		if page.Continue == "" {
			return all, nil
		}

		query.Set("continue", page.Continue)
	}
}

// Remove removes an artifact.
func (c Client) Remove(ctx context.Context, k artifact.Key) error {
	return c.doJSON(ctx, http.MethodDelete, k.Path(), nil, "", http.StatusNoContent, nil)
}

// announce sends a record, as a new one or in place of the one that is there.
func (c Client) announce(
	ctx context.Context,
	k artifact.Key,
	r artifact.Metadata,
	replace bool,
) (made artifact.Metadata, err error) {
	metadata, err := json.Marshal(r)
	if err != nil {
		return made, fmt.Errorf("encode record: %w", err)
	}

	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="metadata"`},
		"Content-Type":        {"application/json"},
	})
	if err == nil {
		_, err = part.Write(metadata)
	}

	if err == nil {
		_, err = w.CreateFormFile("file", r.ImageName) // has to be there; its content is passed over
	}

	if err == nil {
		err = w.Close()
	}

	if err != nil {
		return made, fmt.Errorf("make form: %w", err)
	}

	method, path := http.MethodPost, artifact.CollectionPath(k.Collection, k.Owner, k.Cluster)
	if replace {
		method, path = http.MethodPut, k.Path()
	}

	return made, c.doJSON(ctx, method, path, &b, w.FormDataContentType(), http.StatusCreated, &made)
}

// newRequest makes a request with credentials.
func (c Client) newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}

	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}

	return r, nil
}

// doJSON does a request whose answer is JSON, or nothing if into is nil.
func (c Client) doJSON(
	ctx context.Context,
	method, path string,
	body io.Reader,
	kind string,
	want int,
	into any,
) error {
	r, err := c.newRequest(ctx, method, path, body)
	if err != nil {
		return err
	}

	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}

	response, err := c.HTTP.Do(r)
	if err != nil {
		return stripURL(err)
	}
	defer response.Body.Close()

	if response.StatusCode != want {
		return responseError(response)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, answerMax)).Decode(into); err != nil {
		return fmt.Errorf("read answer of %s: %w", c.URL, err)
	}

	return nil
}

// responseError is the problem that an answer holds; something that is none of the agent's is
// told by its status.
func responseError(response *http.Response) error {
	p := artifact.Problem{}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil || json.Unmarshal(text, &p) != nil || p.Detail == "" {
		p = artifact.Problem{Detail: "the server answered " + response.Status}
	}

	p.Status = response.StatusCode
	return p
}

// stripURL leaves out method and address, which the user knows.
func stripURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return fmt.Errorf("reach the appliance: %w", u.Err)
	}
	return err
}

// isTransient tells whether trying again may help: nothing was refused, or only for now.
func isTransient(err error) bool {
	var here localError
	if errors.As(err, &here) {
		return false
	}

	var p artifact.Problem
	if !errors.As(err, &p) {
		return true
	}

	switch p.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}

	return false
}
