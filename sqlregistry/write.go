package sqlregistry

import (
	"context"
	"database/sql"
	"time"

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
// that began when the bans of its client were lifted, or before, one older
// than the one that is known, and what is of a client last seen when it was
// forgotten, or before; FirstSeen and First of what came later are later, too.
//
// In a flood that outruns Prune the file does not grow without end. While
// there are a sixteenth more clients than their bound, what is of one not yet
// known is passed over; those known go on adding up, and one that is banned,
// or that an operator speaks of, becomes known all the same. While there are a
// sixteenth more stories than theirs, one goes for each that comes: the one
// that Prune would take.
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
			if err := t.client(&b.Clients[i], most(r.o.Clients)); err != nil {
				return err
			}
		}
		for i := range b.Stories {
			if err := t.story(&b.Stories[i], most(r.o.Stories)); err != nil {
				return err
			}
		}
		return nil
	})
}

// mostSpent bounds what is added at once, so that no sum overflows.
const mostSpent = 1 << 50

func bounded(n int64) int64 { return min(max(n, 0), mostSpent) }

// most is how many rows Write leaves of those that have a bound.
func most(bound int) int64 { return int64(bound) + int64(bound)/16 }

// client writes what is new of a client; one that is not known only if there
// are fewer than most.
func (t *tx) client(d *Dirty, most int64) error {
	k, err := keyOf(d.Client)
	if err != nil {
		return nil
	}
	first, forgotten, err := t.remembered(k, d.FirstSeen, d.LastSeen)
	if err != nil || forgotten {
		return err
	}
	s := &d.Spent
	args := []any{
		k, first, nanoseconds(d.LastSeen),
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
	if clients, _, err := t.held(); err != nil || clients >= most {
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
	if err := t.readLifts(); err != nil {
		return false, err
	}
	at, found := t.lifts.latest(t.lifts.at, k)
	return found && at >= began, nil
}

// remembered returns when what was seen of a client begins, Unix ns: not
// before it was last forgotten. It reports whether all of it is forgotten.
func (t *tx) remembered(k key, first, last time.Time) (from int64, forgotten bool, err error) {
	if err := t.readLifts(); err != nil {
		return 0, false, err
	}
	from = nanoseconds(first)
	if at, found := t.lifts.latest(t.lifts.forgot, k); found {
		return max(from, at+1), nanoseconds(last) <= at, nil
	}
	return from, false, nil
}

func (t *tx) readLifts() error {
	if t.liftsRead {
		return nil
	}
	err := t.lifts.readOn(t.ctx, t.link)
	t.liftsRead = err == nil
	return err
}

// lifts is what was lifted and forgotten in the last day or so, as far as it
// was read: when it was last done, by the clients' keys.
type lifts struct {
	read   int64 // the last of changes
	at     map[string]int64
	forgot map[string]int64 // of these, what was forgotten
	bits   [256]bool        // of prefixes in there
}

// latest returns when something was last done to k, or to a prefix that holds
// it.
func (l *lifts) latest(done map[string]int64, k key) (at int64, found bool) {
	if len(done) == 0 {
		return 0, false
	}
	at, found = done[string(k)]
	if k[0] == keyBot {
		return at, found
	}
	for bits := range int(k[len(k)-1]) {
		if l.bits[bits] {
			if of, known := done[string(cutTo(k, bits))]; known && (!found || of > at) {
				at, found = of, true
			}
		}
	}
	return at, found
}

// readOn reads what was not read yet.
func (l *lifts) readOn(ctx context.Context, from *link) error {
	if l.at == nil {
		l.at, l.forgot = map[string]int64{}, map[string]int64{}
	}
	return from.rows(ctx, "SELECT id, client, at, forget FROM changes WHERE id > ? ORDER BY id", []any{l.read}, func(rows *sql.Rows) error {
		var k key
		var at int64
		var forget bool
		if err := rows.Scan(&l.read, &k, &at, &forget); err != nil {
			return err
		}
		if _, err := idOf(k); err != nil {
			return err
		}
		if k[0] != keyBot {
			l.bits[k[len(k)-1]] = true
		}
		l.at[string(k)] = max(at, l.at[string(k)])
		if forget {
			l.forgot[string(k)] = max(at, l.forgot[string(k)])
		}
		return nil
	})
}
