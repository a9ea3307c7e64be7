package artifact

import (
	"net/http"
	"strconv"

	"firstlight.dev/firstlight/assets/artifact"
)

func (a *Agent) announce(w http.ResponseWriter, r *http.Request, c call) error {
	f, err := readForm(w, r, a.Silence)
	if err != nil {
		return err
	}
	k, wanted, err := f.record(c.Key, r.Method)
	if err != nil {
		return err
	}
	made, err := c.depot.Create(r.Context(), k, wanted)
	if err != nil {
		return err
	}
	w.Header().Set("Location", k.Path())
	progress(w, made)
	return a.reply(w, http.StatusCreated, made)
}

func (a *Agent) replace(w http.ResponseWriter, r *http.Request, c call) error {
	if _, err := c.depot.Get(c.Key); err != nil {
		return err
	}
	f, err := readForm(w, r, a.Silence)
	if err != nil {
		return err
	}
	k, wanted, err := f.record(c.Key, r.Method)
	if err != nil {
		return err
	}
	made, err := c.depot.Replace(r.Context(), k, wanted)
	if err != nil {
		return err
	}
	progress(w, made)
	return a.reply(w, http.StatusCreated, made)
}

func (a *Agent) show(w http.ResponseWriter, r *http.Request, c call) error {
	have, err := c.depot.Get(c.Key)
	if err != nil {
		return err
	}
	progress(w, have)
	w.Header().Set("Cache-Control", "no-store")
	return a.reply(w, http.StatusOK, have) // net/http leaves the body out for HEAD
}

func (a *Agent) list(w http.ResponseWriter, r *http.Request, c call) error {
	limit := artifact.PageLength
	query := r.URL.Query()
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > artifact.MaxPage {
			return refuse(http.StatusBadRequest, "limit %q is not a number from 1 to %d", text, artifact.MaxPage)
		}
		limit = n
	}
	items, more := c.depot.List(c.Collection, c.Owner, c.Cluster, query.Get("continue"), limit)
	page := artifact.List{Items: append([]artifact.Record{}, items...)}
	if more {
		page.Continue = items[len(items)-1].ImageName
	}
	return a.reply(w, http.StatusOK, page)
}

func (a *Agent) remove(w http.ResponseWriter, r *http.Request, c call) error {
	if err := c.depot.Remove(r.Context(), c.Key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) describe(w http.ResponseWriter, _ *http.Request, _ call) error {
	a.send(w, http.StatusOK, a.document)
	return nil
}

func (a *Agent) health(w http.ResponseWriter, _ *http.Request, _ call) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // a client that is gone
	return nil
}

func (a *Agent) ready(w http.ResponseWriter, r *http.Request, c call) error {
	if a.depot.Load() == nil {
		return refuse(http.StatusServiceUnavailable, "the store is still being read; try again")
	}
	return a.health(w, r, c)
}

// progressHeaders tell how far an upload is.
func progressHeaders() []string {
	return []string{artifact.HeaderOffset, artifact.HeaderLength, artifact.HeaderComplete}
}

func progress(w http.ResponseWriter, r artifact.Record) {
	h := w.Header()
	h.Set(artifact.HeaderOffset, strconv.FormatInt(r.ImageOffset, 10))
	h.Set(artifact.HeaderLength, strconv.FormatInt(r.ImageLength, 10))
	h.Set(artifact.HeaderComplete, map[bool]string{true: "?1", false: "?0"}[r.Complete])
}
