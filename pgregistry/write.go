package pgregistry

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
)

// Write writes a batch. It ignores
//
//   - records with an empty ClientID,
//   - bans that began when the client's bans were lifted, or before,
//   - bans that began before the recorded one (but see Batch.At), or that end before it
//     while it is in force,
//   - records of a client that was last seen when it was forgotten, or before. For later
//     records, FirstSeen and First are not before that time.
//
// If the recorded ban has ended, one of the same length with a later Since replaces it:
// it is a newer report of the same ban, and the clock has stepped back.
//
// In a flood that Prune cannot keep up with, the tables stay bounded. With a sixteenth
// more clients than their bound, Write ignores records of new clients. With a sixteenth
// more stories than their bound, it removes one for each new story, in the order of
// Prune.
func (r *Registry) Write(ctx context.Context, b registry.Batch) error {
	if len(b.Clients)+len(b.Stories)+len(b.Bans) == 0 {
		return nil
	}
	var locks []int
	if len(b.Bans) > 0 {
		locks = append(locks, lockChanges)
	}
	records := len(locks)
	if len(b.Clients)+len(b.Stories) > 0 {
		locks = append(locks, lockRecordsShared)
	}
	many := false
	write := func(t *tx) error {
		err := t.write(&b, slices.Contains(locks, lockRecords))
		many = errors.Is(err, errMany)
		return err
	}
	err := r.transaction(ctx, len(b.Bans) > 0, true, locks, write)
	if many {
		locks[records] = lockRecords
		err = r.transaction(ctx, len(b.Bans) > 0, true, locks, write)
	}
	return err
}

// errMany reports that stories have to be removed, which needs lockRecords.
var errMany = errors.New("too many stories")

// A stored is a record with its key, and the start of the client's records in Unix ns.
type stored[R any] struct {
	key  key.Key
	from int64
	rec  *R
}

// layers divides records so that each name is only once in a layer, the first ones in
// the first layer. Each layer is in the order of names.
func layers[R any](all []stored[R], name func(*stored[R]) string) (layers [][]stored[R]) {
	seen := make(map[string]int, len(all))
	for i := range all {
		n := name(&all[i])
		at := seen[n]
		seen[n]++
		if at == len(layers) {
			layers = append(layers, make([]stored[R], 0, len(all)))
		}
		layers[at] = append(layers[at], all[i])
	}
	for _, layer := range layers {
		slices.SortFunc(layer, func(a, b stored[R]) int { return cmp.Compare(name(&a), name(&b)) })
	}
	return layers
}

func (t *tx) write(b *registry.Batch, alone bool) error {
	t.latest = key.Latest(shifted(b.At, -t.ClockAhead()))
	var bans []stored[fairshare.BanRecord]
	var deltas []stored[registry.ClientDelta]
	var told []stored[registry.Story]
	t.liftsMu.Lock()
	for i := range b.Bans {
		k, err := key.Of(b.Bans[i].Client)
		if err == nil && !t.lifts.Lifted(k, t.toDatabase(b.Bans[i].Began), t.latest) {
			bans = append(bans, stored[fairshare.BanRecord]{key: k, rec: &b.Bans[i]})
		}
	}
	remembered := func(id fairshare.ClientID, first, last time.Time) (k key.Key, from int64, known bool) {
		k, err := key.Of(id)
		if err != nil {
			return nil, 0, false
		}
		from, forgotten := t.lifts.Remembered(k, t.toDatabase(first), t.toDatabase(last), t.latest)
		return k, from, !forgotten
	}
	for i := range b.Clients {
		d := &b.Clients[i]
		if k, from, known := remembered(d.Client, d.FirstSeen, d.LastSeen); known {
			deltas = append(deltas, stored[registry.ClientDelta]{k, from, d})
		}
	}
	for i := range b.Stories {
		s := &b.Stories[i]
		if k, from, known := remembered(s.Client, s.First, s.Last); known {
			told = append(told, stored[registry.Story]{k, from, s})
		}
	}
	t.liftsMu.Unlock()
	if t.storiesBefore+int64(len(told)) > key.MostRows(t.o.Stories) && !alone {
		return errMany
	}
	if err := t.writeBans(bans); err != nil {
		return err
	}
	if err := t.writeClients(deltas, t.clientsBefore); err != nil {
		return err
	}
	return t.writeStories(told, t.storiesBefore)
}

// liftsStay is how long lifts are kept in memory before all are read again, so that it
// holds no more than the table.
const liftsStay = 24 * time.Hour

// queueLifts queues what readLifts reads: the rows of changes after one, which it returns.
func (t *tx) queueLifts(all *pgx.Batch) (after int64) {
	t.liftsMu.Lock()
	defer t.liftsMu.Unlock()
	if time.Since(t.liftsAge) > liftsStay {
		t.lifts, t.liftsAge = key.Lifts{}, time.Now()
	}
	all.Queue(t.sql("SELECT s.lifted, c.clients, c.stories FROM {}state s, (SELECT sum(clients)::bigint AS clients, " +
		"sum(stories)::bigint AS stories FROM {}counts) c WHERE s.id = 1"))
	all.Queue(t.sql("SELECT id, client, at, forget FROM {}changes WHERE id > $1 ORDER BY id"), t.lifts.LastID)
	return t.lifts.LastID
}

// readLifts reads the new rows of changes, and the numbers of clients and stories.
func (t *tx) readLifts(results pgx.BatchResults, after int64) error {
	var newest int64
	if err := results.QueryRow().Scan(&newest, &t.clientsBefore, &t.storiesBefore); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	t.liftsMu.Lock()
	defer t.liftsMu.Unlock()
	if newest < after || t.lifts.LastID < after { // a backup was restored, or another call has begun again
		t.lifts, t.liftsAge = key.Lifts{}, time.Now()
		if newest == 0 {
			return nil
		}
		rows.Close()
		if err := results.Close(); err != nil {
			return err
		}
		return t.query("SELECT id, client, at, forget FROM {}changes ORDER BY id", nil, t.addLift)
	}
	for rows.Next() {
		if err := t.addLift(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *tx) addLift(rows pgx.Rows) error {
	var id, at int64
	var k key.Key
	var forget bool
	if err := rows.Scan(&id, &k, &at, &forget); err != nil || id <= t.lifts.LastID { // another call has added it
		return err
	}
	return t.lifts.Add(id, k, at, forget)
}

// writeBans writes bans, and protects the clients of new ones. The caller holds lockChanges.
func (t *tx) writeBans(all []stored[fairshare.BanRecord]) error {
	for _, layer := range layers(all, func(s *stored[fairshare.BanRecord]) string {
		return string(s.key) + "\x00" + string(rune(s.rec.Kind)) + s.rec.Rule
	}) {
		var c columns
		for i := range layer {
			b := layer[i].rec
			c.add(layer[i].key, int16(b.Kind), encode(b.Rule), int32(min(max(b.Number, 0), math.MaxInt32)),
				t.toDatabase(b.Began), t.toDatabase(b.Until), t.toDatabase(b.Since), b.DryRun)
		}
		err := t.query(`WITH written AS (INSERT INTO {}bans AS b (client, kind, rule, number, began, until, since, dry, change)
			SELECT client, kind, rule, number, began, until, since, dry, (SELECT bans + 1 FROM {}state WHERE id = 1)
			FROM unnest($2::bytea[], $3::smallint[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[], $8::bigint[], $9::boolean[])
				WITH ORDINALITY AS d (client, kind, rule, number, began, until, since, dry, n) ORDER BY n
			ON CONFLICT (client, kind, rule) DO UPDATE SET number = excluded.number, began = excluded.began,
				until = excluded.until, since = excluded.since, dry = excluded.dry, change = excluded.change
			WHERE b.began <= excluded.began AND (b.until <= excluded.until OR b.until <= excluded.began) OR b.began > $1
				OR b.until <= $1 AND b.until - b.began = excluded.until - excluded.began AND b.since < excluded.since
			RETURNING client, xmax = 0 AS added),
		protected AS (INSERT INTO {}clients AS c (client, kept) SELECT DISTINCT client, 1 FROM written WHERE added ORDER BY client
			ON CONFLICT (client) DO UPDATE SET kept = 1 WHERE c.kept < 1 RETURNING xmax = 0 AS added)
		SELECT (SELECT count(*) FROM written), (SELECT count(*) FROM written WHERE added),
			(SELECT count(*) FROM protected WHERE added)`, c.args(t.latest), func(rows pgx.Rows) error {
			var written, bans, clients int64
			err := rows.Scan(&written, &bans, &clients)
			t.banned = t.banned || written > 0
			t.bans, t.clients = t.bans+bans, t.clients+clients
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeClients writes updates of clients. total is the number of clients before. It
// adds new ones only up to the bound.
func (t *tx) writeClients(all []stored[registry.ClientDelta], total int64) error {
	if most := key.MostRows(t.o.Clients); total+t.clients+int64(len(all)) > most {
		known := map[string]bool{}
		keys := make([]key.Key, len(all))
		for i := range all {
			keys[i] = all[i].key
		}
		const present = "SELECT client FROM {}clients WHERE client = ANY ($1)"
		if err := t.query(present, []any{keys}, func(rows pgx.Rows) error {
			var k key.Key
			err := rows.Scan(&k)
			known[string(k)] = true
			return err
		}); err != nil {
			return err
		}
		free := most - total - t.clients
		all = slices.DeleteFunc(all, func(s stored[registry.ClientDelta]) bool {
			if !known[string(s.key)] && free > 0 {
				free--
				known[string(s.key)] = true
			}
			return !known[string(s.key)]
		})
	}
	for _, layer := range layers(all, func(s *stored[registry.ClientDelta]) string { return string(s.key) }) {
		var c columns
		for i := range layer {
			d := layer[i].rec
			s := &d.Spent
			c.add(layer[i].key, layer[i].from, t.toDatabase(d.LastSeen),
				key.Bounded(s.Requests), key.Bounded(s.Refused), key.Bounded(s.Blocked), key.Bounded(s.DryRun),
				key.Bounded(s.CPU), key.Bounded(s.Time), key.Bounded(s.Bytes), key.Bounded(s.Errors),
				encode(d.Bot), int16(d.BotState), encode(d.UserAgent), encode(d.Fleet))
		}
		err := t.query(`WITH written AS (INSERT INTO {}clients AS c (client, kept, first, last, requests, refused, blocked, dry_run, cpu, took,
				bytes, errors, bot, state, agent, fleet)
			SELECT client, EXISTS (SELECT 1 FROM {}bans b WHERE b.client = d.client)::integer, first, last, requests, refused,
				blocked, dry_run, cpu, took, bytes, errors, bot, state, agent, fleet
			FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
				$8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::smallint[], $14::text[], $15::text[])
				WITH ORDINALITY AS d (client, first, last, requests, refused, blocked, dry_run, cpu, took, bytes, errors, bot,
				state, agent, fleet, n) ORDER BY n
			ON CONFLICT (client) DO UPDATE SET
				first = CASE WHEN c.first = 0 OR excluded.first BETWEEN 1 AND c.first THEN excluded.first ELSE c.first END,
				last = greatest(c.last, excluded.last), requests = c.requests + excluded.requests,
				refused = c.refused + excluded.refused, blocked = c.blocked + excluded.blocked,
				dry_run = c.dry_run + excluded.dry_run, cpu = c.cpu + excluded.cpu, took = c.took + excluded.took,
				bytes = c.bytes + excluded.bytes, errors = c.errors + excluded.errors, bot = excluded.bot,
				state = excluded.state, agent = excluded.agent, fleet = excluded.fleet
			RETURNING xmax = 0 AS added)
			SELECT count(*) FROM written WHERE added`, c.args(), func(rows pgx.Rows) error {
			var added int64
			err := rows.Scan(&added)
			t.clients += added
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeStories writes stories, and replaces earlier ones of their clients and rules.
// total is the number of stories before. If there are too many, it writes one after the
// other and removes one for each new one; the caller holds lockRecords then.
func (t *tx) writeStories(all []stored[registry.Story], total int64) error {
	most := key.MostRows(t.o.Stories)
	if total+int64(len(all)) > most {
		for i := range all {
			before := t.stories
			if err := t.writeStoryLayer(all[i : i+1]); err != nil {
				return err
			}
			if t.stories > before && total+t.stories > most {
				dropped, err := t.integer(t.ctx, t.Conn, "SELECT {}drop_stories($1, $2, $3, 1)", total+t.stories, most,
					int64(math.MaxInt64))
				if err != nil {
					return err
				}
				t.stories -= dropped
			}
		}
		return nil
	}
	for _, layer := range layers(all, func(s *stored[registry.Story]) string {
		return string(s.key) + "\x00" + s.rec.Rule
	}) {
		if err := t.writeStoryLayer(layer); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) writeStoryLayer(layer []stored[registry.Story]) error {
	var c columns
	for i := range layer {
		s := layer[i].rec
		addr := s.Addr.AsSlice()
		if addr == nil {
			addr = []byte{}
		}
		c.add(layer[i].key, encode(s.Rule), encode(s.ID), addr, encode(s.Bot), int16(s.BotState), int16(s.Action),
			int16(s.Ban), s.DryRun, int32(s.Status), layer[i].from, t.toDatabase(s.Last), s.Count,
			t.toDatabase(s.Until), encode(s.By), encode(s.Resource), s.Used, s.Allowed, int64(s.Window),
			encode(s.Method), encode(s.Host), encode(s.Path), encode(s.UserAgent), t.toDatabase(s.BanBegan),
			encode(s.BanMethod), encode(s.BanPath), encode(s.Robots), []byte(key.Network(layer[i].key)))
	}
	networks := map[string]int64{}
	err := t.query("INSERT INTO {}stories AS s ("+storyColumns+", network) SELECT "+storyColumns+", network "+
		`FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::smallint[], $7::smallint[],
			$8::smallint[], $9::boolean[], $10::integer[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
			$15::text[], $16::text[], $17::bigint[], $18::bigint[], $19::bigint[], $20::text[], $21::text[], $22::text[],
			$23::text[], $24::bigint[], $25::text[], $26::text[], $27::text[], $28::bytea[])
			WITH ORDINALITY AS d (`+storyColumns+", network, n) ORDER BY n ON CONFLICT (client, rule) DO UPDATE SET "+
		storyUpdates+" RETURNING network, xmax = 0", c.args(), func(rows pgx.Rows) error {
		var network []byte
		var isNew bool
		err := rows.Scan(&network, &isNew)
		if isNew {
			networks[string(network)]++
			t.stories++
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.countStories(networks)
}

// countStories adds to the numbers of stories of networks.
func (t *tx) countStories(networks map[string]int64) error {
	if len(networks) == 0 {
		return nil
	}
	var c columns
	fewer := false
	for network, n := range networks {
		c.add([]byte(network), n)
		fewer = fewer || n < 0
	}
	_, err := t.exec("INSERT INTO {}networks AS w (network, stories) SELECT network, stories "+
		"FROM unnest($1::bytea[], $2::bigint[]) AS d (network, stories) ORDER BY network "+
		"ON CONFLICT (network) DO UPDATE SET stories = w.stories + excluded.stories", c.args()...)
	if err == nil && fewer {
		_, err = t.exec("DELETE FROM {}networks WHERE network = ANY ($1) AND stories <= 0", c.arrays[0])
	}
	return err
}

// columns are arrays for unnest.
type columns struct{ arrays []any }

// add adds a row. The values of all rows have the same types.
func (c *columns) add(values ...any) {
	if c.arrays == nil {
		c.arrays = make([]any, len(values))
	}
	for i, value := range values {
		switch v := value.(type) {
		case []byte:
			c.arrays[i] = appended(c.arrays[i], v)
		case string:
			c.arrays[i] = appended(c.arrays[i], v)
		case bool:
			c.arrays[i] = appended(c.arrays[i], v)
		case int16:
			c.arrays[i] = appended(c.arrays[i], v)
		case int32:
			c.arrays[i] = appended(c.arrays[i], v)
		case int64:
			c.arrays[i] = appended(c.arrays[i], v)
		}
	}
}

func appended[V any](array any, v V) []V {
	typed, _ := array.([]V)
	return append(typed, v)
}

// args returns the arguments of a statement: first, then the arrays.
func (c *columns) args(first ...any) []any { return append(first, c.arrays...) }

const storyColumns = "client, rule, id, addr, bot, state, action, ban, dry, status, first, last, count, until, " +
	"counted, resource, used, allowed, span, method, host, path, agent, ban_began, ban_method, ban_path, robots"

// storyUpdates sets all columns of a story but those of its key.
var storyUpdates = func() string {
	var all []string
	for _, column := range strings.Split(storyColumns, ", ")[2:] {
		all = append(all, column+" = excluded."+column)
	}
	return strings.Join(all, ", ")
}()
