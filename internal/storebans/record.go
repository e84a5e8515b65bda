package storebans

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"fairshare"
)

// A Lift ends the bans of a client that began at a time or before.
type Lift struct {
	Client fairshare.ClientID
	At     time.Time // of the guard's clock
	Forget bool      // the client was forgotten, too
	Stored time.Time // as in registry.LiftedClient

	id string // the same at all members; "": it is not known
}

// A body is what the store does not have to know of a record.
type body struct {
	By     string `json:"by,omitempty"` // the program that wrote it
	Client string `json:"client"`
	Via    string `json:"via,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Kind   uint8  `json:"kind,omitempty"` // of the ban's key
	Number int    `json:"n,omitempty"`
	Forget bool   `json:"forget,omitempty"`
	Stored int64  `json:"stored,omitempty"` // ns since the Unix epoch
	ID     string `json:"id,omitempty"`     // of a lift
}

// setClient names a client.
func (b *body) setClient(id fairshare.ClientID) {
	if id.Via.IsValid() {
		b.Via = id.Via.String()
		id.Via = netip.Addr{}
	}
	b.Client = id.String()
}

// client returns the client.
func (b *body) client() (id fairshare.ClientID, err error) {
	if id, err = fairshare.ParseClientID(b.Client); err == nil && b.Via != "" {
		id.Via, err = netip.ParseAddr(b.Via)
	}
	return id, err
}

// text returns the text of b.
func (b *body) text() string {
	text, _ := json.Marshal(b) // of texts and numbers
	return string(text)
}

const (
	idBan    = "b"
	idLift   = "l"
	idForget = "f"

	mostRule = 1024 // bytes of a rule's name
	mostBody = 4096
)

// banID names a ban in the store: one key has one by each rule.
func banID(key *fairshare.BanKey, rule string) string { return idBan + string(key[:]) + rule }

// liftID names a lift: a client has one in the store, and one with which it was forgotten.
func liftID(l *Lift) string {
	if l.Forget {
		return idForget + l.Client.String()
	}
	return idLift + l.Client.String()
}

// A record is a ban or a lift as it is read.
type record struct {
	id   string
	by   string
	key  fairshare.BanKey     // of ban
	ban  *fairshare.BanRecord // nil: it is a lift
	lift *Lift
}

var errRecord = errors.New("a record of the store makes no sense")

// parseRecord parses a record. storeNow is the time of the store in ms at the guard's time now.
func parseRecord(id, value string, storeNow int64, now time.Time) (r record, err error) {
	kind, rest, _ := strings.Cut(value, " ")
	beganText, rest, _ := strings.Cut(rest, " ")
	endsText, text, _ := strings.Cut(rest, " ")
	began, err1 := strconv.ParseInt(beganText, 10, 64)
	ends, err2 := strconv.ParseInt(endsText, 10, 64)
	if err := errors.Join(err1, err2); err != nil || len(text) > mostBody || began < 0 || ends < began ||
		ends-storeNow > math.MaxInt64/int64(time.Millisecond) {
		return r, errRecord
	}
	began = min(began, storeNow) // the store's clock may have been set back
	var b body
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return r, fmt.Errorf("%w: %w", errRecord, err)
	}
	client, err := b.client()
	if err != nil {
		return r, fmt.Errorf("%w: %w", errRecord, err)
	}
	r.id, r.by = id, b.By
	local := func(ms int64) time.Time { return now.Add(time.Duration(ms-storeNow) * time.Millisecond) }
	switch kind {
	case "lift":
		r.lift = &Lift{Client: client, At: local(began), Forget: b.Forget, Stored: time.Unix(0, b.Stored), id: b.ID}
		return r, nil
	case "ban":
		var ok bool
		if r.key, ok = fairshare.NewBanKey(fairshare.KeyKind(b.Kind), client); !ok || b.Rule == "" ||
			len(b.Rule) > mostRule || b.Number < 1 || b.Number > math.MaxInt32 || id != banID(&r.key, b.Rule) {
			return r, errRecord
		}
		r.ban = &fairshare.BanRecord{Client: client, Rule: b.Rule, Kind: fairshare.KeyKind(b.Kind), Number: b.Number,
			Began: local(began), Until: local(ends), Since: local(ends)}
		return r, nil
	}
	return r, errRecord
}

// An entry is a record to be written.
type entry struct {
	kind  string // ban, lift or drop
	id    string
	began time.Time // of the guard's clock
	ends  time.Time
	body  string
}

// args appends what put.lua wants of an entry.
func (e *entry) args(args []string, now time.Time) []string {
	ms := func(d time.Duration) string { return strconv.FormatInt(max(0, d.Milliseconds()), 10) }
	return append(args, e.kind, e.id, ms(now.Sub(e.began)), ms(e.ends.Sub(now)), e.body)
}
