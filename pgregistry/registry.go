// Package pgregistry records clients in PostgreSQL: what they used, their bans by rules,
// the stories of their refusals, and operators' decisions (overrides, labels and notes).
// Several servers and commands use one database at once. Start with [Open], which
// returns a [Registry].
//
// Its guarantees:
//
//   - A change by an operator, and a ban, is committed when its method returns, as
//     synchronous_commit of the server says. Clients and stories are committed
//     asynchronously: a crash of the database may lose those of the last second.
//   - All servers see operators' changes and bans in the same order ([Registry.Changes]).
//   - Counts of several servers add up, and of two bans by one rule the longer one stays.
//   - Rows are locked in the order of keys, so that servers never wait for each other in a
//     circle. A transaction that fails because of another one is repeated.
//   - The tables are bounded ([Options]) by [Registry.Prune], and by Write if Prune is too
//     slow.
//   - An error is an [*Error] with the address of the database and a hint.
//
// All tables are in one schema of the database, so that several sites can share it. The
// package needs PostgreSQL 13 or later. It works through a pooler in transaction mode;
// see [Options.ListenURL].
package pgregistry

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultSchema is the schema of Options without one.
const DefaultSchema = "fairshare"

// Options configure Open. The zero Options opens a registry for writing.
type Options struct {
	registry.Bounds

	// Schema is where the tables are; "" means DefaultSchema. A name of up to 40 lower-case
	// letters, digits and "_".
	Schema string

	// Password returns the password of each new connection; nil or "" leaves it to the
	// variable PGPASSWORD or the file that PGPASSFILE names.
	Password func() (string, error)

	// ListenURL names the server itself, if a pooler such as pgbouncer is at the other URL:
	// a connection that waits for notifications must not be shared. "" means the same URL.
	// If a pooler is there, Woken reports nothing then.
	ListenURL string

	ReadOnly  bool // never creates, never migrates, never writes
	MustExist bool // never creates
	Listen    bool // [Registry.Woken] reports changes at once

	// Now is the caller's clock: all times of calls and results are its times. They are
	// stored by the clock of the database, so that servers whose clocks differ agree on
	// when a ban ends. It may be set at any time. nil means time.Now.
	Now func() time.Time

	Log func(string) // gets messages about migrations and problems; may be nil
}

const (
	mostConns   = 4
	connectTime = 5 * time.Second
	callTime    = 30 * time.Second // of a transaction, or of a page of a listing
	slots       = 16               // of the table counts
)

// A Registry is an open registry. It is safe for concurrent use.
type Registry struct {
	o       Options
	where   string // the server and database, for messages: no password
	schema  string // quoted
	pool    *pgxpool.Pool
	version int
	lock    int32 // the first part of advisory locks
	slot    int   // of counts
	sqls    sync.Map
	clock   clock

	liftsMu  sync.Mutex
	lifts    key.Lifts
	liftsAge time.Time // when lifts was empty

	closing  context.Context
	close    context.CancelFunc
	running  sync.WaitGroup
	changed  chan struct{} // asks for a notification
	woken    chan struct{}
	closeOne sync.Once
}

var _ registry.Registry = (*Registry)(nil)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// CheckURL returns an error, with a hint, about a URL that Open refuses. In particular it
// refuses a password: URLs are shown in lists of processes, logs and error messages.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// IsURL reports whether a text names a PostgreSQL server.
func IsURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

func parseURL(text string) (*url.URL, error) {
	if !IsURL(text) {
		return nil, &Error{Where: "URL", Kind: registry.ErrArgument, Details: "it does not begin with postgres://",
			hint: "such as postgres://db/shop?sslmode=verify-full"}
	}
	u, err := url.Parse(text)
	if err != nil { // the error may contain the password
		return nil, &Error{Where: "URL", Kind: registry.ErrArgument, Details: "it is not a valid URL",
			hint: "such as postgres://db/shop?sslmode=verify-full"}
	}
	where := u.Host + u.Path
	if _, has := u.User.Password(); has || u.Query().Has("password") {
		return nil, &Error{Where: where, Kind: registry.ErrArgument, Details: "the URL contains a password",
			hint: "remove it from the URL: logs and lists of processes show URLs; write it to a file and name that: " +
				"password_file: db.password, or set PGPASSWORD"}
	}
	return u, nil
}

// config returns the configuration of connections to a URL.
func config(text string, o *Options) (*pgxpool.Config, string, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, "", err
	}
	q := u.Query()
	where := u.Host + u.Path
	if host := q.Get("host"); u.Host == "" && host != "" {
		where = host + u.Path
	}
	local := true
	hosts := strings.Split(u.Host, ",")
	for _, host := range hosts {
		local = local && isLocal(host)
	}
	if host := q.Get("host"); host != "" {
		hosts, local = strings.Split(host, ","), isLocal(host)
	}
	if !q.Has("sslmode") && os.Getenv("PGSSLMODE") == "" && !local {
		q.Set("sslmode", "verify-full") // never in the clear over a network unless it is written
	}
	if len(hosts) > 1 && !q.Has("target_session_attrs") && !o.ReadOnly {
		q.Set("target_session_attrs", "read-write")
	}
	if !q.Has("connect_timeout") {
		q.Set("connect_timeout", fmt.Sprint(int(connectTime.Seconds())))
	}
	if !q.Has("application_name") {
		q.Set("application_name", "fairshare")
	}
	u.RawQuery = q.Encode()
	c, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, "", &Error{Where: where, Kind: registry.ErrArgument, Details: reason(err),
			hint: "such as postgres://fairshare@db/shop?sslmode=verify-full"}
	}
	if !strings.Contains(u.RawQuery, "pool_max_conns") {
		c.MaxConns = mostConns
	}
	dialer := &net.Dialer{Timeout: connectTime, KeepAliveConfig: net.KeepAliveConfig{Enable: true,
		Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c.ConnConfig.DialFunc = dialer.DialContext
	c.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		if o.Password == nil {
			return nil
		}
		password, err := o.Password()
		if err == nil && password != "" {
			conn.Password = password
		}
		return err
	}
	return c, where, nil
}

// isLocal reports whether a host is on this machine.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || host[0] == '/' || err == nil && addr.IsLoopback()
}

// Open opens the registry in a database. Unless Options forbid it, it creates missing
// tables, and updates those of an older version. The database must exist. One that
// cannot be reached is an [registry.ErrAway].
func Open(ctx context.Context, url string, o Options) (*Registry, error) {
	return open(ctx, url, o, migrations)
}

func open(ctx context.Context, url string, o Options, migrations []string) (*Registry, error) {
	o.Bounds = o.WithDefaults()
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Registry{o: o, clock: clock{now: o.Now}, version: len(migrations), slot: rand.IntN(slots),
		changed: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	c, where, err := config(url, &r.o)
	if err != nil {
		return nil, err
	}
	c.AfterConnect = func(context.Context, *pgx.Conn) error {
		r.clock.renew()
		return nil
	}
	r.where = where
	if !schemaName.MatchString(o.Schema) {
		return nil, &Error{Where: where, Kind: registry.ErrArgument, Details: fmt.Sprintf("the schema %q", o.Schema),
			hint: "a schema has up to 40 lower-case letters, digits and _: schema: fairshare_shop"}
	}
	var listen *pgxpool.Config
	if o.Listen {
		of := url
		if o.ListenURL != "" {
			of = o.ListenURL
		}
		if listen, _, err = config(of, &r.o); err != nil {
			return nil, err
		}
	}
	r.schema = pgx.Identifier{o.Schema}.Sanitize()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte("fairshare " + o.Schema))
	r.lock = int32(hash.Sum32())
	if r.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return nil, r.fault(ctx, err)
	}
	pooled, err := r.isPooled(ctx)
	if err == nil && pooled { // prepared statements belong to a connection of the server
		r.pool.Close()
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		r.pool, err = pgxpool.NewWithConfig(ctx, c)
	}
	if err != nil {
		err = r.fault(ctx, err)
		r.pool.Close()
		return nil, err
	}
	r.closing, r.close = context.WithCancel(context.Background())
	err = r.prepare(ctx, migrations)
	if err == nil {
		err = r.reading(ctx, r.compareClocks)
	}
	if err != nil {
		err = r.fault(ctx, err)
		r.pool.Close()
		return nil, err
	}
	if !o.ReadOnly {
		r.running.Go(r.notify)
	}
	switch {
	case o.Listen && pooled && o.ListenURL == "":
		o.Log(fmt.Sprintf("PostgreSQL registry %s: a connection pooler is in between: changes are read each second; "+
			"listen_url: with the address of the server itself has them noticed at once", where))
	case o.Listen:
		r.running.Go(func() { r.listen(listen) })
	}
	return r, nil
}

// isPooled reports whether a pooler, such as pgbouncer, is between this process and the server: its connections have
// other process numbers than the server's.
func (r *Registry) isPooled(ctx context.Context) (pooled bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	var pid int32
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return uint32(pid) != conn.Conn().PgConn().PID(), err
}

// prepare checks the version of the tables, and updates them.
func (r *Registry) prepare(ctx context.Context, migrations []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	version, err := r.tablesVersion(ctx, r.pool)
	switch {
	case err != nil:
		return err
	case version > len(migrations):
		return &Error{Where: r.where, Kind: registry.ErrNewer, Details: fmt.Sprintf(
			"it has version %d, this program knows %d", version, len(migrations))}
	case version == 0 && (r.o.ReadOnly || r.o.MustExist):
		return &Error{Where: r.where, Kind: registry.ErrMissing, Details: "there are no tables in schema " + r.o.Schema}
	case version < len(migrations) && r.o.ReadOnly:
		return &Error{Where: r.where, Details: fmt.Sprintf("its tables have version %d, this program needs %d", version,
			len(migrations)), hint: "start a server once, or change something by a command, to update them"}
	case version < len(migrations):
		if err := r.migrate(ctx, migrations); err != nil {
			return err
		}
	}
	if r.o.ReadOnly {
		return nil
	}
	var readOnly string // find out here, not at the first write
	if err := r.pool.QueryRow(ctx, "SHOW transaction_read_only").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		return &Error{Where: r.where, Kind: registry.ErrReadOnly, Details: "it is a standby, or set to read only"}
	}
	return nil
}

// Close waits for calls in progress and closes all connections.
func (r *Registry) Close() error {
	r.closeOne.Do(func() {
		r.close()
		r.running.Wait()
		r.pool.Close()
	})
	return nil
}

// sql returns a statement with the schema in place of {}.
func (r *Registry) sql(text string) string {
	if done, found := r.sqls.Load(text); found {
		return done.(string)
	}
	done := strings.ReplaceAll(text, "{}", r.schema+".")
	r.sqls.Store(text, done)
	return done
}

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// A batch is a querier that gathers queries. Their rows are read by send, in one round trip.
type batch struct{ pgx.Batch }

func (*batch) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errors.New("the rows of a batch are read by send")
}

func (b *batch) send(ctx context.Context, conn *pgxpool.Conn) error {
	return conn.SendBatch(ctx, &b.Batch).Close()
}

// rows calls each for each row.
func (r *Registry) rows(ctx context.Context, from querier, query string, args []any, each func(pgx.Rows) error) error {
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	if b, ok := from.(*batch); ok {
		b.Queue(r.sql(query), args...).Query(read)
		return nil
	}
	rows, err := from.Query(ctx, r.sql(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows)
}

// row reads one row into to, and reports whether there is one; not from a batch.
func (r *Registry) row(ctx context.Context, from querier, query string, args []any, to ...any) (found bool, err error) {
	err = r.rows(ctx, from, query, args, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(to...)
	})
	return found, err
}

// reading calls do with a connection that reads.
func (r *Registry) reading(ctx context.Context, do func(ctx context.Context, from *pgxpool.Conn) error) error {
	if r.closing.Err() != nil {
		return r.fault(ctx, errClosed)
	}
	inner, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var err error
	for range 2 { // a connection may have been cut by a restart of the server
		var conn *pgxpool.Conn
		if conn, err = r.acquire(inner); err != nil {
			break
		}
		err = do(inner, conn)
		broken := conn.Conn().IsClosed()
		conn.Release()
		if err == nil || !broken || inner.Err() != nil {
			break
		}
	}
	return r.fault(ctx, err)
}

var errClosed = errors.New("closed")
