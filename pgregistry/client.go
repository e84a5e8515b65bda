package pgregistry

import (
	"cmp"
	"context"
	"slices"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
)

const (
	usualLimit = 50
	mostFound  = 100
	mostInside = 1000
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
	err = r.rows(ctx, from, "SELECT "+clientColumns+" FROM {}clients WHERE "+where, args, func(rows pgx.Rows) error {
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
		c.FirstSeen, c.LastSeen = key.Time(first), key.Time(last)
		if err = decodeAll(&c.Bot, &c.UserAgent, &c.Fleet); err != nil {
			return err
		}
		c.Client, err = key.Client(c.key)
		all = append(all, c)
		return err
	})
	return all, err
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
	"last-seen": {order: "hour DESC, last DESC"},
}

// Clients returns the clients that a query selects.
func (r *Registry) Clients(ctx context.Context, q registry.Query) ([]registry.ClientRecord, error) {
	compare, err := registry.Compare(q.Sort)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = usualLimit
	}
	var records []registry.ClientRecord
	err = r.reading(ctx, func(ctx context.Context, from querier) error {
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
func (r *Registry) selected(ctx context.Context, from querier, q registry.Query) ([]clientRow, error) {
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
		rows, err := r.clientRows(ctx, from, by.rank+" > 0 ORDER BY "+by.rank+" DESC, "+by.order+" LIMIT $1", q.Limit)
		if err != nil || len(rows) == q.Limit {
			return rows, err
		}
	case q.Sort == "last-seen": // the index begins with kept
		var all []clientRow
		for kept := range keptByOperator + 1 {
			rows, err := r.clientRows(ctx, from, "kept = $2"+end, q.Limit, kept)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
		return all, nil
	}
	return r.clientRows(ctx, from, "true"+end, q.Limit)
}

// readDecisions fills in the overrides, labels and notes of operators.
func (r *Registry) readDecisions(ctx context.Context, from querier, all []clientRow) error {
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
	args := []any{keys}
	if err := r.overridesOf(ctx, from, "client = ANY ($1)", args, func(k key.Key, o registry.OverrideRecord) {
		of[string(k)].Override, of[string(k)].Sticky = &o, true
	}); err != nil {
		return err
	}
	if err := r.labelsOf(ctx, from, "client = ANY ($1) ORDER BY name", args, func(k key.Key, l registry.Label) {
		c := of[string(k)]
		c.Labels, c.Sticky = append(c.Labels, l.Name), true
	}); err != nil {
		return err
	}
	const notes = "SELECT client, text FROM {}notes WHERE client = ANY ($1)"
	return r.rows(ctx, from, notes, args, func(rows pgx.Rows) error {
		var k key.Key
		var text string
		if err := rows.Scan(&k, &text); err != nil {
			return err
		}
		of[string(k)].Note, of[string(k)].Sticky = text, true
		return decodeAll(&of[string(k)].Note)
	})
}

// Client returns the records about a client, nil if there are none.
func (r *Registry) Client(ctx context.Context, id fairshare.ClientID) (*registry.Found, error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	var found *registry.Found
	err = r.reading(ctx, func(ctx context.Context, from querier) error {
		found = nil
		f := &registry.Found{}
		rows, err := r.clientRows(ctx, from, "client = $1", k)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := r.readDecisions(ctx, from, rows); err != nil {
				return err
			}
			f.Record = rows[0].ClientRecord
		} else if f.Record.Client, err = key.Client(k); err != nil {
			return err
		}
		if err := r.readWider(ctx, from, k, f); err != nil {
			return err
		}
		first, last := key.Within(k)
		if err := r.rows(ctx, from, "SELECT "+banColumns+" FROM {}bans WHERE client BETWEEN $1 AND $2 "+
			"ORDER BY client, kind, rule LIMIT $3", []any{first, last, mostFound - min(len(f.Bans), mostFound)},
			func(rows pgx.Rows) error {
				b, _, err := scanBan(rows)
				f.Bans = append(f.Bans, b)
				return err
			}); err != nil {
			return err
		}
		if f.Stories, err = r.storiesWithin(ctx, from, k, mostFound); err != nil {
			return err
		}
		inside, err := r.integer(ctx, from, "SELECT count(*) FROM (SELECT 1 FROM {}clients WHERE client BETWEEN $1 AND $2 "+
			"AND client <> $3 LIMIT $4) AS inside", first, last, k, mostInside)
		f.Inside = int(inside)
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

// readWider fills in the records of the prefixes that contain k.
func (r *Registry) readWider(ctx context.Context, from querier, k key.Key, f *registry.Found) error {
	args := []any{key.Wider(k)}
	if key.IsBot(k) {
		return nil
	}
	// Of these keys, that of a longer prefix is greater.
	const in = "client = ANY ($1::bytea[]) ORDER BY client DESC"
	if err := r.overridesOf(ctx, from, in, args, func(_ key.Key, o registry.OverrideRecord) {
		f.Within = append(f.Within, o)
	}); err != nil {
		return err
	}
	if err := r.labelsOf(ctx, from, in+", name", args, func(_ key.Key, l registry.Label) {
		f.Labels = append(f.Labels, l)
	}); err != nil {
		return err
	}
	const bans = "SELECT " + banColumns + " FROM {}bans WHERE " + in + ", kind, rule"
	return r.rows(ctx, from, bans, args, func(rows pgx.Rows) error {
		b, _, err := scanBan(rows)
		f.Bans = append(f.Bans, b)
		return err
	})
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
	err = r.reading(ctx, func(ctx context.Context, from querier) error {
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
	err = r.reading(ctx, func(ctx context.Context, from querier) error {
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
	err = r.reading(ctx, func(ctx context.Context, from querier) error {
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
	}, func(c *row) bool { return seen(c.client, key.Time(c.first)) })
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
			c.State, c.Last = fairshare.BotState(state), time.Unix(0, last)
			s.CPU, s.Time = time.Duration(cpu), time.Duration(took)
			return c, err
		}, seen)
	return err
}

// pages calls seen for each row of the clients that have sent a request, after one id. It returns the last id.
func pages[Row any](ctx context.Context, r *Registry, at int64, columns string,
	scan func(pgx.Rows, *int64) (Row, error), seen func(*Row) bool) (last int64, err error) {
	page := make([]Row, 0, pageRows)
	for {
		next := at
		err := r.reading(ctx, func(ctx context.Context, from querier) error {
			page, next = page[:0], at
			return r.rows(ctx, from, "SELECT id, "+columns+" FROM {}clients WHERE id > $1 AND first > 0 ORDER BY id LIMIT $2",
				[]any{at, pageRows}, func(rows pgx.Rows) error {
					c, err := scan(rows, &next)
					page = append(page, c)
					return err
				})
		})
		if err != nil {
			return at, err
		}
		for i := range page {
			if !seen(&page[i]) {
				return next, nil
			}
		}
		if at = next; len(page) < pageRows {
			return at, nil
		}
	}
}
