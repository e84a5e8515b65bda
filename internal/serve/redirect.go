package serve

import (
	"net/http"
	"net/url"
	"strings"
)

// openRedirect listens for requests without TLS, if the policy file has listen_http.
func (s *server) openRedirect(rt *runtime) error {
	if rt.File.ListenHTTP == "" {
		return nil
	}
	listener, err := listenOn(rt.File.ListenHTTP, "listen_http")
	if err != nil {
		return err
	}
	if err := checkItself(listener.Addr(), rt); err != nil {
		listener.Close()
		return err
	}
	s.plain = s.newSideServer("listen_http", listener, rt, http.HandlerFunc(s.redirect), 0)
	return nil
}

// redirect answers a request without TLS: the CA gets the token of its check, other clients are redirected to
// https. Each answer ends its connection, and no rule counts it: a refusal would cost as much as the redirect.
func (s *server) redirect(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	path := r.URL.Path
	if path == "" {
		path = "/"
	}
	host := plainHost(r.Host)
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		http.Error(w, "This site does not support the method of the request.", http.StatusMethodNotAllowed)
		return
	case path[0] != '/': // OPTIONS *
		http.Error(w, "The address of this page cannot be read.", http.StatusBadRequest)
		return
	case !s.runtime.Load().redirects(r.Host):
		http.Error(w, "There is no such site here.", http.StatusMisdirectedRequest)
		return
	}
	if token := s.acme.Token(host, path); token != nil {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(token)
		return
	}
	target := url.URL{Scheme: "https", Host: host, Path: path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery,
		ForceQuery: r.URL.ForceQuery}
	http.Redirect(w, r, target.String(), http.StatusPermanentRedirect)
}

// plainHost returns a valid host in lower case, without port and final dot.
func plainHost(host string) string {
	if end := strings.IndexByte(host, ']'); end >= 0 {
		return strings.ToLower(host[:end+1])
	}
	host, _, _ = strings.Cut(host, ":")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
