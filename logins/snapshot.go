package logins

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"fairshare"
)

// magic begins a snapshot. Its number is the version of the format.
const magic = "fairshare logins 2\n"

// ErrUnusable means that a snapshot is damaged, or of another version.
var ErrUnusable = errors.New("the snapshot of logins cannot be used")

// A snapshotHead is what follows the magic.
type snapshotHead struct {
	Secret                      [2]uint64
	Latest                      int64
	Forms, Established, Clients uint32
}

// A snapshotForm is a form in a snapshot, before its name.
type snapshotForm struct {
	Key                          uint64
	Kind, Style                  uint8
	Name                         uint16 // its length
	Level                        [classes]float64
	Daily, Usual, Today          [classes]float64
	At, DayAt, UsedAt            int64
	ClosedAt, ClosedSince        int64
	Excess, Page                 int64
	Denied, Bounced, Passed, Mov int64
	ClientBits                   uint64
	Fields                       [8]field
}

// A snapshotClient is a client in a snapshot.
type snapshotClient struct {
	Index                                             uint32
	Hash                                              uint64
	First, Last, Counted, Soft, Grant, Wrote, Refused uint32
	Entered                                           uint32
	LoginPlace, Form, Fails, Cred, Weekly, Week       uint16
	Class                                             uint8
}

// Save writes what the Watcher knows, so that [Watcher.Load] can continue after a
// restart. It holds no address and no credentials, but the secret of the hashes.
func (w *Watcher) Save(out io.Writer) error {
	w.mu.Lock()
	sum := crc32.NewIEEE()
	var content []byte
	add := func(v any) { content, _ = binary.Append(content, binary.LittleEndian, v) }
	content = append(content, magic...)
	head := snapshotHead{Secret: w.secret, Latest: w.latest, Established: uint32(len(w.established))}
	for _, f := range w.forms {
		if f.style != candidate {
			head.Forms++
		}
	}
	for i := range w.clients {
		if w.clients[i].hash != 0 {
			head.Clients++
		}
	}
	add(&head)
	for _, f := range w.forms {
		if f.style == candidate {
			continue
		}
		add(&snapshotForm{Key: f.key, Kind: uint8(f.kind), Style: uint8(f.style), Name: uint16(len(f.name)),
			Level: f.level, Daily: f.daily, Usual: f.usual, Today: f.today, At: f.at, DayAt: f.dayAt,
			UsedAt: f.usedAt, ClosedAt: f.closedAt, ClosedSince: f.closedSince, Excess: f.excess, Page: f.page[0],
			Denied: int64(f.denied), Bounced: int64(f.bounced), Passed: int64(f.passed), Mov: int64(f.moved),
			ClientBits: f.clientBits, Fields: f.fields})
		content = append(content, f.name...)
	}
	for hash := range w.established {
		add(hash)
	}
	for i := range w.clients {
		if e := &w.clients[i]; e.hash != 0 {
			add(&snapshotClient{uint32(i), e.hash, e.first, e.last, e.counted, e.soft, e.grant, e.wrote, e.refused,
				e.entered, e.loginPlace, e.form, e.fails, e.cred, e.weekly, e.week, uint8(e.class)})
		}
	}
	w.mu.Unlock()
	sum.Write(content)
	content = binary.LittleEndian.AppendUint32(content, sum.Sum32())
	_, err := out.Write(content)
	return err
}

// maxSnapshot is more than a snapshot may have, in bytes.
const maxSnapshot = 16 << 20

// Load reads what Save has written, before the first request. Times after now count as
// now: the clock was ahead. After an error that is [ErrUnusable] the Watcher is as
// before.
func (w *Watcher) Load(in io.Reader, now time.Time) error {
	content, err := io.ReadAll(bufio.NewReader(io.LimitReader(in, maxSnapshot+1)))
	if err != nil {
		return err
	}
	unusable := func(why string) error { return fmt.Errorf("%w: %s", ErrUnusable, why) }
	if len(content) < len(magic)+4 || string(content[:len(magic)]) != magic {
		return unusable("it is of another version, or not a snapshot")
	}
	end := len(content) - 4
	if crc32.ChecksumIEEE(content[:end]) != binary.LittleEndian.Uint32(content[end:]) {
		return unusable("it is damaged")
	}
	rest, short := content[len(magic):end], false
	next := func(v any) {
		n, err := binary.Decode(rest, binary.LittleEndian, v)
		if short = short || err != nil; !short {
			rest = rest[n:]
		}
	}
	var head snapshotHead
	if next(&head); short || head.Forms > maxForms || head.Established > maxEstablished ||
		head.Clients > clientSets*clientWays {
		return unusable("it is damaged")
	}
	read := New(Options{Client: w.client})
	at, minute := now.Unix(), minutes(now.Unix())
	read.secret, read.latest = head.Secret, min(head.Latest, at)
	for range head.Forms {
		var s snapshotForm
		if next(&s); short || len(rest) < int(s.Name) || s.Style == uint8(ignored) || s.Style > uint8(open) ||
			s.Kind == uint8(fairshare.NoAttempt) || s.Kind > uint8(fairshare.CredentialsAttempt) {
			return unusable("it is damaged")
		}
		f := &form{key: s.Key, name: string(rest[:s.Name]), kind: fairshare.Attempt(s.Kind), style: style(s.Style),
			level: s.Level, daily: s.Daily, usual: s.Usual, today: s.Today, at: min(s.At, at),
			dayAt:  min(s.DayAt, at),
			usedAt: min(s.UsedAt, at), closedAt: min(s.ClosedAt, at), closedSince: min(s.ClosedSince, at),
			excess: s.Excess, page: [2]int64{s.Page}, denied: int(s.Denied),
			bounced: int(s.Bounced), passed: int(s.Passed), moved: int(s.Mov), clientBits: s.ClientBits,
			fields: s.Fields}
		rest = rest[s.Name:]
		read.forms[f.key] = f
		if f.closedAt != 0 {
			read.closed.Store(true)
		}
		if f.style == plain || f.style == learned {
			bit := filterBit(f.name)
			read.wanted[bit>>6].Or(1 << (bit & 63))
		}
	}
	for range head.Established {
		var hash uint64
		next(&hash)
		read.established[hash] = struct{}{}
	}
	if head.Clients > 0 {
		read.clients = make([]entry, clientSets*clientWays)
	}
	for range head.Clients {
		var c snapshotClient
		if next(&c); short || int(c.Index) >= len(read.clients) || c.Class >= uint8(classes) {
			return unusable("it is damaged")
		}
		read.clients[c.Index] = entry{hash: c.Hash, first: min(c.First, minute), last: min(c.Last, minute),
			counted: min(c.Counted, minute), soft: min(c.Soft, minute+softFor), grant: min(c.Grant, minute+resetFor),
			wrote: min(c.Wrote, minute), refused: min(c.Refused, minute), form: c.Form, fails: c.Fails, cred: c.Cred,
			entered: min(c.Entered, minute), loginPlace: c.LoginPlace, weekly: c.Weekly, week: c.Week,
			class: class(c.Class)}
	}
	if short || len(rest) > 0 {
		return unusable("it is damaged")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secret, w.latest, w.forms, w.established, w.clients = read.secret, read.latest, read.forms, read.established,
		read.clients
	for i := range w.wanted {
		w.wanted[i].Store(read.wanted[i].Load())
	}
	w.closed.Store(read.closed.Load())
	return nil
}

// An Attack is a form that refuses unknown clients.
type Attack struct {
	Path   string // in lower case; "(basic)" and perhaps a host for Basic credentials
	Kind   fairshare.Attempt
	Since  int64 // Unix seconds of the clock of Request.Time
	Excess int64 // attempts beyond the budgets since then
}

// Attacks returns the forms that have refused unknown clients within the last six hours, by
// path.
func (w *Watcher) Attacks() []Attack {
	if !w.closed.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Attack
	for _, f := range w.forms {
		if f.closedSince != 0 && w.latest-f.closedAt <= quietAfter {
			all = append(all, Attack{f.name, f.kind, f.closedSince, f.excess})
		}
	}
	slices.SortFunc(all, func(a, b Attack) int {
		if a.Path < b.Path {
			return -1
		}
		return 1
	})
	return all
}

// IsEmpty reports whether there is nothing to save.
func (w *Watcher) IsEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clients == nil && len(w.forms) == 0
}
