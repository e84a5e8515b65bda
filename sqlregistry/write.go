package sqlregistry

import (
	"context"
	"database/sql"

	"fairshare"
)

// A Batch is written whole or not at all.
type Batch struct {
	Clients []Dirty
	Stories []fairshare.Story
	Bans    []fairshare.Banned
}

// A Dirty is what is new of a client: its Spent is added to what is known,
// FirstSeen and LastSeen widen it, and UserAgent, Bot and BotState take the
// place of what was known. What operators set is not looked at.
type Dirty = fairshare.ClientRecord

// Write writes a batch. What names no client is passed over, and so is a ban
// that began when the bans of its client were lifted, or before, and one
// older than the one that is known.
//
// It does not sync the disk, bans or not: an attack that brings about a
// thousand bans would cost the site's own disk a thousand syncs. So a power
// failure may cost what was written last (see the package); a killed process
// costs nothing.
func (r *Registry) Write(ctx context.Context, b Batch) error {
	if len(b.Clients)+len(b.Stories)+len(b.Bans) == 0 {
		return nil
	}
	return r.writing(ctx, false, func(t *tx) error {
		for i := range b.Bans {
			if err := t.ban(&b.Bans[i]); err != nil {
				return err
			}
		}
		for i := range b.Clients {
			if err := t.client(&b.Clients[i]); err != nil {
				return err
			}
		}
		for i := range b.Stories {
			if err := t.story(&b.Stories[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// mostSpent bounds what is added at once, so that no sum overflows.
const mostSpent = 1 << 50

func bounded(n int64) int64 { return min(max(n, 0), mostSpent) }

func (t *tx) client(d *Dirty) error {
	k, err := keyOf(d.Client)
	if err != nil {
		return nil
	}
	s := &d.Spent
	args := []any{
		k, nanoseconds(d.FirstSeen), nanoseconds(d.LastSeen),
		bounded(s.Requests), bounded(s.Refused), bounded(s.Blocked), bounded(s.Trial),
		bounded(int64(s.CPU)), bounded(int64(s.Time)), bounded(s.Bytes), bounded(s.Errors),
		d.Bot, int64(d.BotState), d.UserAgent,
	}
	n, err := t.exec(`UPDATE clients SET first = CASE WHEN first = 0 OR ?2 BETWEEN 1 AND first THEN ?2 ELSE first END, last = max(last, ?3),
		requests = requests + ?4, refused = refused + ?5, blocked = blocked + ?6, trial = trial + ?7,
		cpu = cpu + ?8, took = took + ?9, bytes = bytes + ?10, errors = errors + ?11, bot = ?12, state = ?13, agent = ?14 WHERE client = ?1`, args...)
	if err != nil || n > 0 {
		return err
	}
	t.clients++
	_, err = t.exec(`INSERT INTO clients (client, first, last, requests, refused, blocked, trial, cpu, took, bytes, errors, bot, state, agent, kept)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, EXISTS (SELECT 1 FROM bans WHERE client = ?1))`, args...)
	return err
}

func (t *tx) ban(b *fairshare.Banned) error {
	k, err := keyOf(b.Client)
	if err != nil {
		return nil
	}
	began := nanoseconds(b.Began)
	if lifted, err := t.liftedSince(k, began); err != nil || lifted {
		return err
	}
	args := []any{k, int64(b.Kind), b.Rule, int64(b.Number), began, nanoseconds(b.Until), nanoseconds(b.Since), b.DryRun}
	n, err := t.exec("UPDATE bans SET number = ?4, began = ?5, until = ?6, since = ?7, dry = ?8 WHERE client = ?1 AND kind = ?2 AND rule = ?3 AND began <= ?5", args...)
	if err != nil || n > 0 {
		return err
	}
	n, err = t.exec("INSERT INTO bans (client, kind, rule, number, began, until, since, dry) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", args...)
	if err != nil || n == 0 {
		return err
	}
	t.bans++
	return t.keep(k, keptByBan)
}

// What keeps a row of clients.
const (
	keptByBan      = 1
	keptByOperator = 2
)

// liftedSince reports whether the bans of a client were lifted at a time or
// later.
func (t *tx) liftedSince(k key, began int64) (bool, error) {
	l := &t.lifts
	if !t.liftsRead {
		if err := l.readOn(t.ctx, t.link); err != nil {
			return false, err
		}
		t.liftsRead = true
	}
	if len(l.at) == 0 {
		return false, nil
	}
	if at, found := l.at[string(k)]; found && at >= began {
		return true, nil
	}
	for _, w := range wider(k) {
		if l.bits[w[len(w)-1]] {
			if at, found := l.at[string(w)]; found && at >= began {
				return true, nil
			}
		}
	}
	return false, nil
}

// lifts is what was lifted and forgotten in the last day or so, as far as it
// was read: when it was last done, by the clients' keys.
type lifts struct {
	read int64 // the last of changes
	at   map[string]int64
	bits [256]bool // of prefixes in there
}

// readOn reads what was not read yet.
func (l *lifts) readOn(ctx context.Context, from *link) error {
	if l.at == nil {
		l.at = map[string]int64{}
	}
	return from.rows(ctx, "SELECT id, client, at FROM changes WHERE id > ? ORDER BY id", []any{l.read}, func(rows *sql.Rows) error {
		var k key
		var at int64
		if err := rows.Scan(&l.read, &k, &at); err != nil {
			return err
		}
		if _, err := idOf(k); err != nil {
			return err
		}
		if k[0] != keyBot {
			l.bits[k[len(k)-1]] = true
		}
		l.at[string(k)] = max(at, l.at[string(k)])
		return nil
	})
}
