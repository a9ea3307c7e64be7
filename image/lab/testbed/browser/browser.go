// Package browser uses the appliance's page for tests as a person does without JavaScript: it keeps cookies, follows
// links, fills forms in and sends them.
package browser

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/html"
)

// Browser is one that was just opened. It takes any certificate.
type Browser struct{ client http.Client }

// New returns a browser that connects by dial; nil: from this process.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) (*Browser, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}

	return &Browser{http.Client{Timeout: time.Minute, Jar: jar, Transport: &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}}, nil
}

// Open reads a page. One that is refused is an error with what it says.
func (b *Browser) Open(ctx context.Context, at string) (text string, err error) {
	return b.send(ctx, http.MethodGet, at, "")
}

// Answer opens a page, fills in its last form and sends it. It returns the page that follows.
func (b *Browser) Answer(ctx context.Context, at string, typed url.Values) (text string, err error) {
	page, err := b.Open(ctx, at)
	if err != nil {
		return "", err
	}

	to, fields, err := readForm(page)
	if err != nil {
		return "", fmt.Errorf("read form of %s: %w", at, err)
	}
	base, err := url.Parse(at)
	if err != nil {
		return "", err
	}
	for name := range typed {
		fields.Set(name, typed.Get(name))
	}

	return b.send(ctx, http.MethodPost, base.ResolveReference(to).String(), fields.Encode())
}

func (b *Browser) send(ctx context.Context, method, at, form string) (text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(form))
	if err != nil {
		return "", err
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	response, err := b.client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", at, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s: %s", method, at, response.Status, body)
	}

	return string(body), nil
}

// readForm is where the last form of a page is sent, and what is in it.
func readForm(page string) (to *url.URL, fields url.Values, err error) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return nil, nil, err
	}

	for n := range root.Descendants() {
		switch n.Data {
		case "form":
			if to, err = url.Parse(attribute(n, "action")); err != nil {
				return nil, nil, err
			}
			fields = url.Values{}
		case "input":
			if fields != nil {
				fields.Set(attribute(n, "name"), attribute(n, "value"))
			}
		}
	}

	if to == nil {
		return nil, nil, fmt.Errorf("there is none: %s", page)
	}
	return to, fields, nil
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
