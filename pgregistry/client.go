package pgregistry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const clientColumns = "client, kept, first, last, requests, refused, blocked, dry_run, cpu, took, bytes, errors, bot, " +
	"state, agent, fleet"

// A clientRow is a row of clients.
type clientRow struct {
	registry.ClientRecord
	key        key.Key
	protection int // the column kept
}

func (r *Registry) clientRows(ctx context.Context, from querier, where string, args ...any) (
	all []clientRow, err error) {
	err = r.eachClient(ctx, from, where, args, func(c clientRow) { all = append(all, c) })
	return all, err
}

func (r *Registry) eachClient(ctx context.Context, from querier, where string, args []any, each func(clientRow)) error {
	return r.rows(ctx, from, "SELECT "+clientColumns+" FROM {}clients WHERE "+where, args, func(rows pgx.Rows) error {
		var c clientRow
		var first, last, cpu, took int64
		var state int16
		s := &c.Spent
		err := rows.Scan(&c.key, &c.protection, &first, &last, &s.Requests, &s.Refused, &s.Blocked, &s.DryRun, &cpu,
			&took, &s.Bytes, &s.Errors, &c.Bot, &state, &c.UserAgent, &c.Fleet)
		if err != nil {
			return err
		}
		c.BotState, s.CPU, s.Time = fairshare.BotState(state), time.Duration(cpu), time.Duration(took)
		c.FirstSeen, c.LastSeen = r.fromDatabase(first), r.fromDatabase(last)
		if err = decodeAll(&c.Bot, &c.UserAgent, &c.Fleet); err != nil {
			return err
		}
		if c.Client, err = key.Client(c.key); err == nil {
			each(c)
		}
		return err
	})
}

// A sorting is an order of clients in SQL.
type sorting struct {
	order string // the columns
	rank  string // a column that grows with the first one, with an index of those above 0; "": none
}

var sortings = map[string]sorting{
	"":          {"requests DESC", "rank_requests"},
	"requests":  {"requests DESC", "rank_requests"},
	"refused":   {"refused DESC, dry_run DESC", "rank_refused"},
	"cpu":       {"cpu DESC, requests DESC", "rank_cpu"},
	"blocked":   {order: "blocked DESC"},
	"dry-run":   {order: "dry_run DESC"},
	"time":      {order: "took DESC, requests DESC"},
	"bytes":     {order: "bytes DESC, requests DESC"},
	"errors":    {order: "errors DESC, requests DESC"},
	"client":    {order: "client"},
	"last-seen": {order: "minute DESC, last DESC"},
}

// Clients returns the clients that a query selects.
func (r *Registry) Clients(ctx context.Context, q registry.Query) ([]registry.ClientRecord, error) {
	compare, err := registry.Compare(q.Sort)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = key.UsualLimit
	}
	var records []registry.ClientRecord
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		rows, err := r.selected(ctx, from, q)
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b clientRow) int {
			return cmp.Or(compare(&a.ClientRecord, &b.ClientRecord), slices.Compare(a.key, b.key))
		})
		rows = rows[:min(len(rows), q.Limit)]
		if err := r.readDecisions(ctx, from, rows); err != nil {
			return err
		}
		records = make([]registry.ClientRecord, len(rows))
		for i := range rows {
			records[i] = rows[i].ClientRecord
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// selected returns the rows that a query selects, in any order. It may return more.
func (r *Registry) selected(ctx context.Context, from *pgxpool.Conn, q registry.Query) ([]clientRow, error) {
	by := sortings[q.Sort]
	end := " ORDER BY " + by.order + " LIMIT $1"
	if q.Sticky {
		end = " AND kept = 2" + end
	}
	switch {
	case q.Label != "" && q.Bot != "":
		return r.clientRows(ctx, from, "client IN (SELECT client FROM {}labels WHERE name = $2) AND (bot = $3 OR client = $4)"+
			end, q.Limit, encode(q.Label), encode(q.Bot), key.OfBot(q.Bot))
	case q.Label != "":
		return r.clientRows(ctx, from, "client IN (SELECT client FROM {}labels WHERE name = $2)"+end, q.Limit,
			encode(q.Label))
	case q.Bot != "":
		rows, err := r.clientRows(ctx, from, "bot = $2 AND bot <> ''"+end, q.Limit, encode(q.Bot))
		if err != nil {
			return nil, err
		}
		itself, err := r.clientRows(ctx, from, "client = $3 AND bot <> $2"+end, q.Limit, encode(q.Bot),
			key.OfBot(q.Bot))
		return append(rows, itself...), err
	case q.Sticky:
		return r.clientRows(ctx, from, "true"+end, q.Limit)
	case by.rank != "":
		largest := by.rank + " > 0 ORDER BY " + by.rank + " DESC, " + by.order + " LIMIT $1"
		rows, err := r.clientsByIndex(ctx, from, largest, q.Limit)
		if err != nil || len(rows) == q.Limit {
			return rows, err
		}
	case q.Sort == "last-seen": // the index begins with kept
		var all []clientRow
		for kept := range keptByOperator + 1 {
			rows, err := r.clientsByIndex(ctx, from, "kept = $2"+end, q.Limit, kept)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
		return all, nil
	}
	return r.clientRows(ctx, from, "true"+end, q.Limit)
}

// clientsByIndex is clientRows for an order that an index has; see byIndex.
func (r *Registry) clientsByIndex(ctx context.Context, from *pgxpool.Conn, where string, args ...any) (
	all []clientRow, err error) {
	reads := &batch{}
	reads.Queue("BEGIN READ ONLY")
	reads.Queue("SELECT " + byIndex)
	err = r.eachClient(ctx, reads, where, args, func(c clientRow) { all = append(all, c) })
	reads.Queue("COMMIT")
	return all, errors.Join(err, reads.send(ctx, from))
}

// readDecisions fills in the overrides, labels and notes of operators.
func (r *Registry) readDecisions(ctx context.Context, from *pgxpool.Conn, all []clientRow) error {
	of := map[string]*clientRow{}
	var keys []key.Key
	for i := range all {
		if all[i].protection == keptByOperator {
			of[string(all[i].key)] = &all[i]
			keys = append(keys, all[i].key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	const these = "client = ANY ($1)"
	args, reads := []any{keys}, &batch{}
	return errors.Join(
		r.overridesOf(ctx, reads, these, args, func(k key.Key, o registry.OverrideRecord) {
			of[string(k)].Override, of[string(k)].Sticky = &o, true
		}),
		r.labelsOf(ctx, reads, these+" ORDER BY name", args, func(k key.Key, l registry.Label) {
			c := of[string(k)]
			c.Labels, c.Sticky = append(c.Labels, l.Name), true
		}),
		r.rows(ctx, reads, "SELECT client, text FROM {}notes WHERE "+these, args, func(rows pgx.Rows) error {
			var k key.Key
			var text string
			if err := rows.Scan(&k, &text); err != nil {
				return err
			}
			of[string(k)].Note, of[string(k)].Sticky = text, true
			return decodeAll(&of[string(k)].Note)
		}),
		reads.send(ctx, from))
}

// Client returns the records about a client, nil if there are none.
func (r *Registry) Client(ctx context.Context, id fairshare.ClientID) (*registry.Found, error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	var found *registry.Found
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		found = nil
		f, reads := &registry.Found{}, &batch{}
		var rows []clientRow
		first, last := key.Within(k)
		if err := errors.Join(
			r.eachClient(ctx, reads, "client = $1", []any{k}, func(c clientRow) { rows = append(rows, c) }),
			r.readWider(ctx, reads, k, f),
			r.rows(ctx, reads, "SELECT "+banColumns+" FROM {}bans WHERE client BETWEEN $1 AND $2 "+
				"ORDER BY client, kind, rule LIMIT $3", []any{first, last, key.MostFound}, r.addBan(f)),
			r.storiesWithin(ctx, reads, k, key.MostFound, &f.Stories),
			r.rows(ctx, reads, "SELECT count(*) FROM (SELECT 1 FROM {}clients WHERE client BETWEEN $1 AND $2 "+
				"AND client <> $3 LIMIT $4) AS inside", []any{first, last, k, key.MostInside},
				func(rows pgx.Rows) error { return rows.Scan(&f.Inside) }),
			reads.send(ctx, from)); err != nil {
			return err
		}
		f.Record.Client, err = key.Client(k)
		if len(rows) > 0 {
			if err := r.readDecisions(ctx, from, rows); err != nil {
				return err
			}
			f.Record = rows[0].ClientRecord
		}
		if len(rows)+len(f.Within)+len(f.Labels)+len(f.Bans)+len(f.Stories)+f.Inside > 0 {
			found = f
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// addBan returns a function that adds a row to the bans of f, at most key.MostFound in all.
func (r *Registry) addBan(f *registry.Found) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		b, _, err := r.scanBan(rows)
		if len(f.Bans) < key.MostFound {
			f.Bans = append(f.Bans, b)
		}
		return err
	}
}

// readWider queues the reads of the records of the prefixes that contain k.
func (r *Registry) readWider(ctx context.Context, reads *batch, k key.Key, f *registry.Found) error {
	args := []any{key.Wider(k)}
	if key.IsBot(k) {
		return nil
	}
	// Of these keys, that of a longer prefix is greater.
	const in = "client = ANY ($1::bytea[]) ORDER BY client DESC"
	return errors.Join(
		r.overridesOf(ctx, reads, in, args, func(_ key.Key, o registry.OverrideRecord) {
			f.Within = append(f.Within, o)
		}),
		r.labelsOf(ctx, reads, in+", name", args, func(_ key.Key, l registry.Label) { f.Labels = append(f.Labels, l) }),
		r.rows(ctx, reads, "SELECT "+banColumns+" FROM {}bans WHERE "+in+", kind, rule", args, r.addBan(f)))
}

// Provisional returns the recorded provisional clients within a prefix, at most limit:
// first those of just this prefix, then in the order of their addresses.
func (r *Registry) Provisional(ctx context.Context, id fairshare.ClientID, limit int) (clients []fairshare.ClientID,
	err error) {
	k, err := key.Of(id)
	if err != nil || key.IsBot(k) {
		return nil, err
	}
	first, last := key.Within(k)
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		clients = nil
		return r.rows(ctx, from, "SELECT client FROM {}clients WHERE client BETWEEN $1 AND $2 AND length(client) = $3 "+
			"ORDER BY client LIMIT $4", []any{first, last, key.ProvisionalLen(k), limit}, func(rows pgx.Rows) error {
			var found key.Key
			if err := rows.Scan(&found); err != nil {
				return err
			}
			client, err := key.Client(found)
			clients = append(clients, client)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return clients, nil
}

// Heaviest returns the clients within a prefix with the most requests, the most first.
// The prefix itself is not among them.
func (r *Registry) Heaviest(ctx context.Context, id fairshare.ClientID, limit int) (records []registry.ClientRecord,
	err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	first, last := key.Within(k)
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		rows, err := r.clientRows(ctx, from, "client BETWEEN $1 AND $2 AND client <> $3 AND requests > 0 "+
			"ORDER BY requests DESC, client LIMIT $4", first, last, k, limit)
		records = nil
		for i := range rows {
			records = append(records, rows[i].ClientRecord)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// TotalTime returns the upstream's time that all recorded clients used together.
func (r *Registry) TotalTime(ctx context.Context) (total time.Duration, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		sum, err := r.integer(ctx, from, "SELECT least(coalesce(sum(took), 0), 9223372036854775807)::bigint FROM {}clients")
		total = time.Duration(sum)
		return err
	})
	return total, err
}

// pageRows is how many clients one statement of FirstSeen and Sums reads.
const pageRows = 4096

// FirstSeen calls seen for each client that has sent a request, with the time of the
// first one, in the order in which they came. It stops when seen returns false. It holds
// no lock: it may miss a client that is written in the meantime.
func (r *Registry) FirstSeen(ctx context.Context, seen func(client fairshare.ClientID, first time.Time) bool) error {
	_, err := r.FirstSeenSince(ctx, 0, seen)
	return err
}

// FirstSeenSince is FirstSeen for the clients after a place in their order; 0 is the
// beginning. It returns the place of the last one. A transaction in progress may add
// clients before it.
func (r *Registry) FirstSeenSince(ctx context.Context, after int64,
	seen func(client fairshare.ClientID, first time.Time) bool) (last int64, err error) {
	type row struct {
		client fairshare.ClientID
		first  int64
	}
	return pages(ctx, r, after, "client, first", func(rows pgx.Rows, id *int64) (c row, err error) {
		var k key.Key
		if err = rows.Scan(id, &k, &c.first); err == nil {
			c.client, err = key.Client(k)
		}
		return c, err
	}, func(c *row) bool { return seen(c.client, r.fromDatabase(c.first)) })
}

// Sums calls seen for each client that has sent a request, as FirstSeen does.
func (r *Registry) Sums(ctx context.Context, seen func(*registry.ClientSum) bool) error {
	_, err := pages(ctx, r, 0, "client, requests, refused, blocked, dry_run, cpu, took, bytes, errors, fleet, "+
		"bot, state, last",
		func(rows pgx.Rows, id *int64) (c registry.ClientSum, err error) {
			var k key.Key
			var cpu, took, last int64
			var state int16
			s := &c.Spent
			if err = rows.Scan(id, &k, &s.Requests, &s.Refused, &s.Blocked, &s.DryRun, &cpu, &took, &s.Bytes, &s.Errors,
				&c.Fleet, &c.Bot, &state, &last); err == nil {
				c.Client, err = key.Client(k)
			}
			if err == nil {
				err = decodeAll(&c.Fleet, &c.Bot)
			}
			c.State, c.Last = fairshare.BotState(state), r.fromDatabase(last)
			s.CPU, s.Time = time.Duration(cpu), time.Duration(took)
			return c, err
		}, seen)
	return err
}

// pages calls seen for each row of the clients that have sent a request, after one id. It returns the last id.
func pages[Row any](ctx context.Context, r *Registry, after int64, columns string,
	scan func(pgx.Rows, *int64) (Row, error), seen func(*Row) bool) (last int64, err error) {
	last = after
	err = key.Pages(pageRows, func(page []Row) ([]Row, error) {
		next := last
		err := r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
			page, next = page[:0], last // a page may be read twice
			return r.rows(ctx, from, "SELECT id, "+columns+" FROM {}clients WHERE id > $1 AND first > 0 ORDER BY id LIMIT $2",
				[]any{last, pageRows}, func(rows pgx.Rows) error {
					c, err := scan(rows, &next)
					page = append(page, c)
					return err
				})
		})
		last = next
		return page, err
	}, seen)
	return last, err
}
