package api

import (
	"net/http"
	"strconv"

	"firstlight.dev/firstlight/assets/artifact"
)

func (a *Agent) serveAnnounce(w http.ResponseWriter, r *http.Request, c call) error {
	f, err := readForm(w, r, a.Silence)
	if err != nil {
		return err
	}

	k, wanted, err := f.parseMetadata(c.Key, r.Method)
	if err != nil {
		return err
	}

	made, err := c.blobs.Create(r.Context(), k, wanted)
	if err != nil {
		return err
	}

	w.Header().Set("Location", k.Path())
	setProgressHeaders(w, made)
	return a.writeJSON(w, http.StatusCreated, made)
}

func (a *Agent) serveReplace(w http.ResponseWriter, r *http.Request, c call) error {
	if _, err := c.blobs.Get(c.Key); err != nil {
		return err
	}

	f, err := readForm(w, r, a.Silence)
	if err != nil {
		return err
	}

	k, wanted, err := f.parseMetadata(c.Key, r.Method)
	if err != nil {
		return err
	}

	made, err := c.blobs.Replace(r.Context(), k, wanted)
	if err != nil {
		return err
	}

	setProgressHeaders(w, made)
	return a.writeJSON(w, http.StatusCreated, made)
}

func (a *Agent) serveMetadata(w http.ResponseWriter, r *http.Request, c call) error {
	have, err := c.blobs.Get(c.Key)
	if err != nil {
		return err
	}

	setProgressHeaders(w, have)
	w.Header().Set("Cache-Control", "no-store")
	return a.writeJSON(w, http.StatusOK, have) // net/http leaves the body out for HEAD
}

func (a *Agent) serveList(w http.ResponseWriter, r *http.Request, c call) error {
	limit := artifact.PageLength
	query := r.URL.Query()
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > artifact.MaxPage {
			return newProblem(http.StatusBadRequest, "limit %q is not a number from 1 to %d", text, artifact.MaxPage)
		}
		limit = n
	}

	items, more := c.blobs.List(c.Collection, c.Owner, c.Cluster, query.Get("continue"), limit)
	page := artifact.List{Items: append([]artifact.Metadata{}, items...)}
	if more {
		page.Continue = items[len(items)-1].ImageName
	}

	return a.writeJSON(w, http.StatusOK, page)
}

func (a *Agent) serveRemove(w http.ResponseWriter, r *http.Request, c call) error {
	if err := c.blobs.Remove(r.Context(), c.Key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ call) error {
	a.send(w, http.StatusOK, a.document)
	return nil
}

func (a *Agent) serveHealth(w http.ResponseWriter, _ *http.Request, _ call) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // a client that is gone
	return nil
}

func (a *Agent) serveReady(w http.ResponseWriter, r *http.Request, c call) error {
	if a.blobs.Load() == nil {
		return newProblem(http.StatusServiceUnavailable, "the store is still being read; try again")
	}
	return a.serveHealth(w, r, c)
}

// progressHeaders tell how far an upload is.
func progressHeaders() []string {
	return []string{artifact.HeaderOffset, artifact.HeaderLength, artifact.HeaderComplete}
}

func setProgressHeaders(w http.ResponseWriter, r artifact.Metadata) {
	h := w.Header()
	h.Set(artifact.HeaderOffset, strconv.FormatInt(r.ImageOffset, 10))
	h.Set(artifact.HeaderLength, strconv.FormatInt(r.ImageLength, 10))
	h.Set(artifact.HeaderComplete, map[bool]string{true: "?1", false: "?0"}[r.Complete])
}
