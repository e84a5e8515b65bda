package sqlregistry

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

const clientColumns = "client, kept, first, last, requests, refused, blocked, trial, cpu, took, bytes, errors, bot, state, agent, fleet"

// A sorting is an order of clients. An index of all clients would make each write
// expensive. So each index holds only clients with large values; all clients are
// read if these are too few.
type sorting struct {
	column    string
	heavy     string // the condition of the index
	next      string // a column that orders clients of equal value; "": none
	ascending bool   // the column is the key
	compare   func(a, b *registry.ClientRecord) int
}

// order returns the end of a statement that sorts.
func (by *sorting) order(column string) string {
	if by.ascending {
		return " ORDER BY " + column + " LIMIT ?"
	}
	if by.next != "" {
		column += " DESC, " + by.next
	}
	return " ORDER BY " + column + " DESC LIMIT ?"
}

func sortingOf(name string) (by sorting, err error) {
	switch name {
	case "", "requests":
		by = sorting{column: "requests", heavy: "requests >= 100"}
	case "refused":
		by = sorting{column: "refused", heavy: "refused >= 100", next: "trial"}
	case "cpu":
		by = sorting{column: "cpu", heavy: "cpu >= 10000000000", next: "requests"}
	case "dry-run":
		by.column = "trial"
	case "time":
		by = sorting{column: "took", next: "requests"}
	case "bytes", "errors":
		by = sorting{column: name, next: "requests"}
	case "client":
		by = sorting{column: "client", ascending: true}
	case "last-seen":
		by.column = "last"
	default:
		by.column = name
	}
	by.compare, err = registry.Compare(name)
	return by, err
}

// A clientRow is a row of clients.
type clientRow struct {
	registry.ClientRecord
	key        key.Key
	protection int // the column kept
}

// Clients returns the clients that a query selects.
func (r *Registry) Clients(ctx context.Context, q registry.Query) ([]registry.ClientRecord, error) {
	by, err := sortingOf(q.Sort)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = key.UsualLimit
	}
	var records []registry.ClientRecord
	err = r.reading(ctx, func(l *link) error {
		rows, err := selected(ctx, l, q, by)
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b clientRow) int {
			return cmp.Or(by.compare(&a.ClientRecord, &b.ClientRecord), slices.Compare(a.key, b.key))
		})
		rows = rows[:min(len(rows), q.Limit)]
		records = make([]registry.ClientRecord, len(rows))
		for i := range rows {
			if err := rows[i].readOverride(ctx, l); err != nil {
				return err
			}
			records[i] = rows[i].ClientRecord
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// TotalTime returns the upstream's time that all recorded clients used together.
func (r *Registry) TotalTime(ctx context.Context) (total time.Duration, err error) {
	err = r.reading(ctx, func(l *link) error {
		sum, err := l.integer(ctx, "SELECT CAST(TOTAL(took) AS INTEGER) FROM clients")
		total = time.Duration(sum)
		return err
	})
	return total, err
}

// selected returns the rows that a query selects, in any order. It may return
// more.
func selected(ctx context.Context, l *link, q registry.Query, by sorting) ([]clientRow, error) {
	order := by.order(by.column)
	sticky := fmt.Sprintf("kept = %d", keptByOperator)
	if q.Sticky {
		order = " AND " + sticky + order
	}
	switch {
	case q.Label != "":
		where, args := "client IN (SELECT client FROM labels WHERE name = ?)", []any{q.Label}
		if q.Bot != "" {
			where, args = where+" AND (bot = ? OR client = ?)", append(args, q.Bot, key.OfBot(q.Bot))
		}
		return clientRows(ctx, l, where+order, append(args, q.Limit)...)
	case q.Bot != "":
		rows, err := clientRows(ctx, l, "bot = ? AND bot <> ''"+order, q.Bot, q.Limit)
		if err != nil {
			return nil, err
		}
		itself, err := clientRows(ctx, l, "client = ? AND bot <> ?"+order, key.OfBot(q.Bot), q.Bot,
			q.Limit)
		return append(rows, itself...), err
	case q.Sticky:
		return clientRows(ctx, l, sticky+by.order(by.column), q.Limit)
	case by.heavy == "":
		var all []clientRow
		for kept := range keptByOperator + 1 {
			rows, err := clientRows(ctx, l, "kept = ?"+order, kept, q.Limit)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
		}
		return all, nil
	}
	rows, err := clientRows(ctx, l, by.heavy+order, q.Limit)
	if err != nil || len(rows) == q.Limit {
		return rows, err
	}
	return clientRows(ctx, l, "1"+by.order("+"+by.column), q.Limit)
}

func clientRows(ctx context.Context, l *link, where string, args ...any) (all []clientRow, err error) {
	err = l.rows(ctx, "SELECT "+clientColumns+" FROM clients WHERE "+where, args, func(rows *sql.Rows) error {
		var c clientRow
		var first, last, cpu, took int64
		s := &c.Spent
		err := rows.Scan(&c.key, &c.protection, &first, &last, &s.Requests, &s.Refused, &s.Blocked, &s.DryRun,
			&cpu, &took, &s.Bytes, &s.Errors, &c.Bot, &c.BotState, &c.UserAgent,
			&c.Fleet)
		if err != nil {
			return err
		}
		s.CPU, s.Time = time.Duration(cpu), time.Duration(took)
		c.FirstSeen, c.LastSeen = key.Time(first), key.Time(last)
		c.Client, err = key.Client(c.key)
		all = append(all, c)
		return err
	})
	return all, err
}

// readOverride fills in the override, labels and note of operators.
func (c *clientRow) readOverride(ctx context.Context, l *link) (err error) {
	if c.protection != keptByOperator {
		return nil
	}
	if c.Override, err = overrideOf(ctx, l, c.key); err != nil {
		return err
	}
	if c.Labels, err = labelsOf(ctx, l, c.key); err != nil {
		return err
	}
	if _, err = l.row(ctx, "SELECT text FROM notes WHERE client = ?", []any{c.key}, &c.Note); err != nil {
		return err
	}
	c.Sticky = c.Override != nil || c.Labels != nil || c.Note != ""
	return nil
}

// Client returns the records about a client, nil if there are none.
func (r *Registry) Client(ctx context.Context, id fairshare.ClientID) (*registry.Found, error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	var found *registry.Found
	err = r.reading(ctx, func(l *link) error {
		rows, err := clientRows(ctx, l, "client = ?", k)
		if err != nil {
			return err
		}
		f := &registry.Found{}
		if len(rows) > 0 {
			if err := rows[0].readOverride(ctx, l); err != nil {
				return err
			}
			f.Record = rows[0].ClientRecord
		} else if f.Record.Client, err = key.Client(k); err != nil {
			return err
		}
		if err := readWider(ctx, l, k, f); err != nil {
			return err
		}
		first, last := key.Within(k)
		free := key.MostFound - min(len(f.Bans), key.MostFound)
		if f.Bans, err = bansWithin(ctx, l, first, last, free, f.Bans); err != nil {
			return err
		}
		if f.Stories, err = storiesWithin(ctx, l, k, key.MostFound); err != nil {
			return err
		}
		inside, err := l.integer(ctx,
			"SELECT count(*) FROM (SELECT 1 FROM clients WHERE client BETWEEN ? AND ? AND client <> ? LIMIT ?)",
			first, last, k, key.MostInside)
		if err != nil {
			return err
		}
		f.Inside = int(inside)
		if len(rows)+len(f.Within)+len(f.Labels)+len(f.Bans)+len(f.Stories)+f.Inside > 0 {
			found = f
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Provisional returns the recorded provisional clients within a prefix, at most
// limit: first those of just this prefix, then in the order of their addresses.
func (r *Registry) Provisional(ctx context.Context, id fairshare.ClientID, limit int) (clients []fairshare.ClientID,
	err error) {
	k, err := key.Of(id)
	if err != nil || key.IsBot(k) {
		return nil, err
	}
	first, last := key.Within(k)
	err = r.reading(ctx, func(l *link) error {
		clients = nil
		return l.rows(ctx, "SELECT client FROM clients WHERE client BETWEEN ? AND ? AND length(client) = ? "+
			"ORDER BY client LIMIT ?", []any{first, last, key.ProvisionalLen(k), limit}, func(rows *sql.Rows) error {
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

// Heaviest returns the clients within a prefix with the most requests, the most
// first. The prefix itself is not among them.
func (r *Registry) Heaviest(ctx context.Context, id fairshare.ClientID, limit int) ([]registry.ClientRecord, error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	var records []registry.ClientRecord
	err = r.reading(ctx, func(l *link) error {
		first, last := key.Within(k)
		rows, err := clientRows(ctx, l,
			"client BETWEEN ? AND ? AND client <> ? AND +requests > 0 ORDER BY +requests DESC, client LIMIT ?",
			first, last, k, limit)
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

// readWider fills in the records of the prefixes that contain k.
func readWider(ctx context.Context, l *link, k key.Key, f *registry.Found) error {
	if key.IsBot(k) {
		return nil
	}
	args := make([]any, 1+128) // a prefix of each length, 0 to 128, may contain a provisional client
	for i, w := range key.Wider(k) {
		args[i] = w
	}
	// Of these keys, that of a longer prefix is greater.
	in := " WHERE client IN (?" + strings.Repeat(", ?", len(args)-1) + ") ORDER BY client DESC"
	err := l.rows(ctx, "SELECT client, action, since, until, reason FROM words"+in, args, func(rows *sql.Rows) error {
		override, err := scanOverride(rows)
		f.Within = append(f.Within, override)
		return err
	})
	if err != nil {
		return err
	}
	err = l.rows(ctx, "SELECT client, name FROM labels"+in+", name", args, func(rows *sql.Rows) error {
		var k key.Key
		var name string
		if err := rows.Scan(&k, &name); err != nil {
			return err
		}
		id, err := key.Client(k)
		f.Labels = append(f.Labels, registry.Label{Client: id, Name: name})
		return err
	})
	if err != nil {
		return err
	}
	return l.rows(ctx, "SELECT "+banColumns+" FROM bans"+in+", kind, rule", args, func(rows *sql.Rows) error {
		b, _, err := scanBan(rows)
		f.Bans = append(f.Bans, b)
		return err
	})
}
