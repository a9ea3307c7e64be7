package api

import (
	"context"
	"net/http"
	"net/url"
)

func (s *Server) serveKubeconfig(w http.ResponseWriter, r *http.Request) {
	text, err := s.Kubeconfig(r.Context(), r.URL.Query().Get("cluster"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text)
}

// Kubeconfig is the log-in of a cluster's administrator; see Server.
func (c Client) Kubeconfig(ctx context.Context, cluster string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "/v1/kubeconfig?"+url.Values{"cluster": {cluster}}.Encode())
}
