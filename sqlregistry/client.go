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
)

// A Query selects clients.
type Query struct {
	Sort   string // "requests" (also ""), "refused" (then in dry run), "cpu" (then requests) or "last-seen"; the most first
	Bot    string // only those taken for that bot; "" for all
	Label  string // only those that have it themselves; "" for all
	Sticky bool   // only those that an operator has set something on
	Limit  int    // 0 means 50
}

const usualLimit = 50

const clientColumns = "client, kept, first, last, requests, refused, blocked, trial, cpu, took, bytes, errors, bot, state, agent"

// A sorting is a way to sort clients. Keeping all of them in order would make
// each write dear; so only those that had much are in an index, and all are
// looked at when those are too few.
type sorting struct {
	column string
	heavy  string // the condition of the index
	value  func(*fairshare.ClientRecord) int64

	next string // a column that orders those of equal value; "": none does
	then func(*fairshare.ClientRecord) int64
}

// order returns the end of a statement that sorts.
func (by *sorting) order(column string) string {
	if by.next != "" {
		column += " DESC, " + by.next
	}
	return " ORDER BY " + column + " DESC LIMIT ?"
}

// compare says which of two comes first, 0 where that is not told.
func (by *sorting) compare(a, b *fairshare.ClientRecord) int {
	c := cmp.Compare(by.value(b), by.value(a))
	if c == 0 && by.then != nil {
		c = cmp.Compare(by.then(b), by.then(a))
	}
	return c
}

func sortingOf(name string) (sorting, error) {
	requests := func(r *fairshare.ClientRecord) int64 { return r.Spent.Requests }
	switch name {
	case "", "requests":
		return sorting{column: "requests", heavy: "requests >= 100", value: requests}, nil
	case "refused":
		return sorting{column: "refused", heavy: "refused >= 100", value: func(r *fairshare.ClientRecord) int64 { return r.Spent.Refused },
			next: "trial", then: func(r *fairshare.ClientRecord) int64 { return r.Spent.Trial }}, nil
	case "cpu":
		return sorting{column: "cpu", heavy: "cpu >= 10000000000", value: func(r *fairshare.ClientRecord) int64 { return int64(r.Spent.CPU) },
			next: "requests", then: requests}, nil
	case "last-seen":
		return sorting{column: "last", value: func(r *fairshare.ClientRecord) int64 { return nanoseconds(r.LastSeen) }}, nil
	}
	return sorting{}, fmt.Errorf("sorting by %q is %w: requests, refused, cpu and last-seen are", name, errArgument)
}

// A clientRow is a row of clients.
type clientRow struct {
	fairshare.ClientRecord
	key  key
	kept int
}

// Clients returns the clients that a query selects.
func (r *Registry) Clients(ctx context.Context, q Query) ([]fairshare.ClientRecord, error) {
	by, err := sortingOf(q.Sort)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = usualLimit
	}
	var records []fairshare.ClientRecord
	err = r.reading(ctx, func(l *link) error {
		rows, err := selected(ctx, l, q, by)
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b clientRow) int {
			return cmp.Or(by.compare(&a.ClientRecord, &b.ClientRecord), slices.Compare(a.key, b.key))
		})
		rows = rows[:min(len(rows), q.Limit)]
		records = make([]fairshare.ClientRecord, len(rows))
		for i := range rows {
			if err := rows[i].said(ctx, l); err != nil {
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

// selected returns the rows that a query selects, and maybe more, in any order.
func selected(ctx context.Context, l *link, q Query, by sorting) ([]clientRow, error) {
	order := by.order(by.column)
	sticky := fmt.Sprintf("kept = %d", keptByOperator)
	if q.Sticky {
		order = " AND " + sticky + order
	}
	switch {
	case q.Label != "":
		where, args := "client IN (SELECT client FROM labels WHERE name = ?)", []any{q.Label}
		if q.Bot != "" {
			where, args = where+" AND (bot = ? OR client = ?)", append(args, q.Bot, append(key{keyBot}, q.Bot...))
		}
		return clientRows(ctx, l, where+order, append(args, q.Limit)...)
	case q.Bot != "":
		rows, err := clientRows(ctx, l, "bot = ? AND bot <> ''"+order, q.Bot, q.Limit)
		if err != nil {
			return nil, err
		}
		itself, err := clientRows(ctx, l, "client = ? AND bot <> ?"+order, append(key{keyBot}, q.Bot...), q.Bot, q.Limit)
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
		err := rows.Scan(&c.key, &c.kept, &first, &last, &s.Requests, &s.Refused, &s.Blocked, &s.Trial, &cpu, &took, &s.Bytes, &s.Errors, &c.Bot, &c.BotState, &c.UserAgent)
		if err != nil {
			return err
		}
		s.CPU, s.Time = time.Duration(cpu), time.Duration(took)
		c.FirstSeen, c.LastSeen = timeOf(first), timeOf(last)
		c.Client, err = idOf(c.key)
		all = append(all, c)
		return err
	})
	return all, err
}

// said fills in what operators said.
func (c *clientRow) said(ctx context.Context, l *link) (err error) {
	if c.kept != keptByOperator {
		return nil
	}
	if c.Said, err = wordOf(ctx, l, c.key); err != nil {
		return err
	}
	if c.Labels, err = labelsOf(ctx, l, c.key); err != nil {
		return err
	}
	if _, err = l.row(ctx, "SELECT text FROM notes WHERE client = ?", []any{c.key}, &c.Note); err != nil {
		return err
	}
	c.Sticky = c.Said != nil || c.Labels != nil || c.Note != ""
	return nil
}

// Found is what is known of a client.
type Found struct {
	Record  fairshare.ClientRecord // of just this client; its FirstSeen is zero when it was never seen
	Within  []fairshare.Said       // words on wider prefixes that hold it, the longest first
	Labels  []fairshare.Label      // of wider prefixes that hold it, the longest first
	Bans    []fairshare.Banned     // of wider prefixes that hold it, its own, and those within; at most 100
	Stories []fairshare.Story      // its own and those within, the latest first; at most 100
	Inside  int                    // other clients within it, counted up to 1,000
}

const (
	mostFound  = 100
	mostInside = 1000
)

// Client returns what is known of a client, nil when nothing is.
func (r *Registry) Client(ctx context.Context, id fairshare.ClientID) (*Found, error) {
	k, err := keyOf(id)
	if err != nil {
		return nil, err
	}
	var found *Found
	err = r.reading(ctx, func(l *link) error {
		rows, err := clientRows(ctx, l, "client = ?", k)
		if err != nil {
			return err
		}
		f := &Found{}
		if len(rows) > 0 {
			if err := rows[0].said(ctx, l); err != nil {
				return err
			}
			f.Record = rows[0].ClientRecord
		} else if f.Record.Client, err = idOf(k); err != nil {
			return err
		}
		if err := f.wider(ctx, l, k); err != nil {
			return err
		}
		first, last := within(k)
		if f.Bans, err = bansWithin(ctx, l, first, last, mostFound-min(len(f.Bans), mostFound), f.Bans); err != nil {
			return err
		}
		if f.Stories, err = storiesWithin(ctx, l, k, mostFound); err != nil {
			return err
		}
		inside, err := l.integer(ctx, "SELECT count(*) FROM (SELECT 1 FROM clients WHERE client BETWEEN ? AND ? AND client <> ? LIMIT ?)", first, last, k, mostInside)
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

// wider fills in what is known of the prefixes that hold k.
func (f *Found) wider(ctx context.Context, l *link, k key) error {
	if k[0] == keyBot {
		return nil
	}
	args := make([]any, 128)
	for i, w := range wider(k) {
		args[i] = w
	}
	in := " WHERE client IN (?" + strings.Repeat(", ?", len(args)-1) + ") ORDER BY client DESC" // of these keys the longer prefix is the greater
	err := l.rows(ctx, "SELECT client, action, since, until, reason FROM words"+in, args, func(rows *sql.Rows) error {
		said, err := scanWord(rows)
		f.Within = append(f.Within, said)
		return err
	})
	if err != nil {
		return err
	}
	err = l.rows(ctx, "SELECT client, name FROM labels"+in+", name", args, func(rows *sql.Rows) error {
		var k key
		var name string
		if err := rows.Scan(&k, &name); err != nil {
			return err
		}
		id, err := idOf(k)
		f.Labels = append(f.Labels, fairshare.Label{Client: id, Name: name})
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
