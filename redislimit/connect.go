package redislimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

// A Connection says how to reach a Redis or Valkey store.
type Connection struct {
	// URL is one of:
	//   - redis://host:6379/0, where port and database may be left out
	//   - unix:///run/redis/redis.sock
	//   - redis+cluster://host1,host2:7000 with some nodes of a cluster
	//   - redis+sentinel://host1,host2/main with some sentinels and the name of the master
	//
	// rediss, rediss+cluster and rediss+sentinel are the same over TLS. valkey and
	// valkeys are other names of redis and rediss. A user may precede the host; a
	// password may not: it would be shown wherever the URL is.
	URL      string
	User     string // replaces that of the URL; empty means the default user
	Password string // empty means none

	// CA is the file of the certificates that the server's certificate is checked
	// against; empty means those of the system. Cert and Key are the files of the
	// client's own certificate. All are PEM and only for TLS.
	CA, Cert, Key string
}

// A topology is the kind of a store.
type topology uint8

const (
	single topology = iota
	sentinel
	cluster
)

// String returns the topology as Status names it.
func (t topology) String() string { return [...]string{"single", "sentinel", "cluster"}[t] }

// A target is a parsed URL.
type target struct {
	topology
	tls    bool
	socket string   // unix
	addrs  []string // with ports
	master string   // of sentinels
	user   string
	db     int
}

var errPassword = errors.New("the URL of the store contains a password: write it to a file and name that file " +
	"(password_file)")

// Check returns an error if c is unusable. It reads the files and connects to
// nothing.
func (c *Connection) Check() error {
	_, err := c.options()
	return err
}

// parseURL parses the URL of a store. Errors never quote what could be a password.
func parseURL(raw string) (t target, err error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return t, errors.New("the URL of the store has no scheme; examples: redis://host, rediss://host, " +
			"redis+cluster://a,b,c, redis+sentinel://a,b/main, unix:///run/redis/redis.sock")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, _, found := strings.Cut(authority[:at], ":")
		if found {
			return t, errPassword
		}
		t.user, authority = user, authority[at+1:]
	}
	if strings.Contains(rest, "@") && t.user == "" { // a password with a slash
		return t, errPassword
	}
	if query != "" {
		return t, errors.New("the URL of the store takes no query: everything else is a setting of its own")
	}
	base, kind, _ := strings.Cut(scheme, "+")
	switch base {
	case "redis", "valkey":
	case "rediss", "valkeys":
		t.tls = true
	case "unix":
		if kind != "" || authority != "" || path == "" {
			return t, errors.New("the URL of a socket is unix:///path")
		}
		t.socket = "/" + path
		return t, nil
	default:
		return t, fmt.Errorf("the URL of the store has the unknown scheme %q", scheme)
	}
	port := "6379"
	switch kind {
	case "":
	case "cluster":
		t.topology = cluster
	case "sentinel":
		t.topology, port = sentinel, "26379"
	default:
		return t, fmt.Errorf("the URL of the store has the unknown scheme %q", scheme)
	}
	for host := range strings.SplitSeq(authority, ",") {
		addr, err := withPort(host, port)
		if err != nil {
			return t, err
		}
		t.addrs = append(t.addrs, addr)
	}
	if t.topology == single && len(t.addrs) > 1 {
		return t, errors.New("several servers are a cluster or sentinels: redis+cluster:// or redis+sentinel://")
	}
	if t.topology == sentinel {
		if t.master, path, _ = strings.Cut(path, "/"); t.master == "" {
			return t, errors.New("the name of the master is missing: redis+sentinel://host1,host2/NAME")
		}
	}
	if path == "" {
		return t, nil
	}
	if t.db, err = strconv.Atoi(path); err != nil || t.db < 0 {
		return t, fmt.Errorf("the database of the store is a number, not %q", path)
	}
	if t.topology == cluster && t.db != 0 {
		return t, errors.New("a cluster has database 0 alone")
	}
	return t, nil
}

// withPort returns host:port.
func withPort(host, port string) (string, error) {
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if h, p, err := net.SplitHostPort(host); err == nil {
		bare, port = h, p
	} else if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		return "", fmt.Errorf("the URL of the store has the unusable host %q", host)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("the URL of the store has the unusable port %q", port)
	}
	if bare == "" {
		return "", errors.New("the URL of the store has no host")
	}
	if _, err := netip.ParseAddr(bare); err != nil && strings.ContainsAny(bare, "[]: %") {
		return "", fmt.Errorf("the URL of the store has the unusable host %q", bare)
	}
	return net.JoinHostPort(bare, port), nil
}

// options returns how rueidis connects.
func (c *Connection) options() (o rueidis.ClientOption, err error) {
	t, err := parseURL(c.URL)
	if err != nil {
		return o, err
	}
	if !t.tls && (c.CA != "" || c.Cert != "" || c.Key != "") {
		return o, errors.New("certificates are for TLS: the URL of the store begins with rediss")
	}
	if (c.Cert == "") != (c.Key == "") {
		return o, errors.New("cert and key of the store belong together: one of them is missing")
	}
	o = rueidis.ClientOption{
		Username: c.User, Password: c.Password,
		InitAddress: t.addrs, SelectDB: t.db,
		ForceSingleClient:  t.topology == single,
		ClientName:         "fairshare",
		ClientSetInfo:      rueidis.DisableClientSetInfo, // fewer commands for the ACL
		DisableCache:       true,
		DisableRetry:       true, // a charge that is sent twice counts twice
		ConnWriteTimeout:   time.Second,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10,
		PipelineMultiplex: -1, // one connection: after a good probe it works for all
	}
	o.Dialer.Timeout, o.Dialer.KeepAlive = time.Second, 5*time.Second
	if o.Username == "" {
		o.Username = t.user
	}
	if o.Username != "" && o.Password == "" {
		return o, fmt.Errorf("the user %q of the store has no password", o.Username)
	}
	if t.tls {
		if o.TLSConfig, err = c.tls(); err != nil {
			return o, err
		}
	}
	switch {
	case t.topology == sentinel:
		o.Sentinel.MasterSet, o.Sentinel.Dialer, o.Sentinel.TLSConfig = t.master, o.Dialer, o.TLSConfig
		o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	case t.socket != "":
		o.InitAddress = []string{t.socket}
		o.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	return o, nil
}

func (c *Connection) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("certificates of the store: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("certificates of the store: %s contains none", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("own certificate for the store: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// A Store is a client of one store, which several parts of a program may share.
// It connects in the background and tries again until it is closed. It is safe
// for concurrent use.
type Store struct {
	topology
	address string // for people; without user and password
	options rueidis.ClientOption

	mu     sync.Mutex
	client rueidis.Client
	err    error // why there is no client yet
	closed bool

	ready chan struct{} // closed when there is a client
	stop  chan struct{}
	done  chan struct{}
}

// errConnecting is why there is no client right after Connect.
var errConnecting = errors.New("not connected yet")

// Connect begins to connect. It returns an error only if c is unusable, not if
// the store is away.
func Connect(c Connection) (*Store, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	t, _ := parseURL(c.URL)
	s := &Store{
		topology: t.topology, options: o, address: strings.Join(o.InitAddress, ","), err: errConnecting,
		ready: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go s.connect()
	return s, nil
}

// connect tries until there is a client. Later rueidis reconnects by itself.
func (s *Store) connect() {
	defer close(s.done)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		o := s.options
		o.InitAddress = slices.Clone(o.InitAddress)
		client, err := rueidis.NewClient(o)
		if err == nil && s.topology == cluster && client.Mode() != rueidis.ClientModeCluster {
			client.Close()
			err = errors.New("the server is not in cluster mode")
		}
		s.mu.Lock()
		if err == nil && s.closed {
			client.Close()
		} else if err == nil {
			s.client, s.err = client, nil
			close(s.ready)
		} else {
			s.err = s.explain(err)
		}
		done := err == nil || s.closed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.stop:
			return
		case <-time.After(pause):
		}
	}
}

// explain adds what may be the cause of an error that does not say it.
func (s *Store) explain(err error) error {
	switch config := s.options.TLSConfig; {
	case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
		return err
	case config == nil:
		return fmt.Errorf("%w (if it wants TLS, the URL begins with rediss)", err)
	case len(config.Certificates) == 0:
		return fmt.Errorf("%w (if it wants a certificate of this server, cert and key name it)", err)
	}
	return err
}

// Client returns the client, or an error as long as the store was never
// reached. The client must not be closed. Its ring ignores contexts when it is
// full, so no request may wait for it.
func (s *Store) Client() (rueidis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, fmt.Errorf("store %s: %w", s.address, s.err)
	}
	return s.client, nil
}

// Wait waits until the store was reached once, and returns why it was not when
// ctx ends.
func (s *Store) Wait(ctx context.Context) (rueidis.Client, error) {
	select {
	case <-s.ready:
	case <-ctx.Done():
	case <-s.stop:
	}
	return s.Client()
}

// Address returns the addresses of the store as people read them.
func (s *Store) Address() string { return s.address }

// Close closes the client.
func (s *Store) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	if s.client != nil && !closed {
		s.client.Close()
	}
	if !closed {
		close(s.stop)
	}
	s.mu.Unlock()
	<-s.done
}
