// Package bantest tests implementations of [fairshare.Bans].
//
// Start with [Run]. [Model] is slow and obviously correct.
package bantest

import (
	"slices"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// A Model holds bans in one list, which every call reads from the beginning to
// the end. It never drops a ban. It is safe for concurrent use.
type Model struct {
	mu    sync.Mutex
	names []string // of rules, by rule number
	bans  []*ban
}

var _ fairshare.Bans = (*Model)(nil)

// A ban is in force or a former ban.
type ban struct {
	key    fairshare.BanKey
	rule   uint32
	dryRun bool
	count  int64 // bans so far, less those forgiven
	began  time.Time
	until  time.Time
	since  time.Time // from when forgiveness counts
}

// These bans of clients of an IPv6 network have an effect on its newcomers.
const (
	clientsThatLimit = 8
	clientsThatBan   = 128
)

// RuleNumber implements [fairshare.Bans].
func (m *Model) RuleNumber(name string) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	number := slices.Index(m.names, name)
	if number < 0 {
		number, m.names = len(m.names), append(m.names, name)
	}
	return uint32(number)
}

// Len implements [fairshare.Bans].
func (m *Model) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.bans)
}

// Find implements [fairshare.Bans].
func (m *Model) Find(q *fairshare.BanQuery, now time.Time) (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.bans {
		client := q.Key.WithoutVia()
		holds := b.key == q.Key || b.key == client ||
			q.Newcomer && client.IsIPv6Client() && b.key == client.Network()
		if holds && b.rule == q.Rule && b.dryRun == q.DryRun {
			longest = max(longest, b.until.Sub(now))
		}
	}
	return longest
}

// LimitsNewcomers implements [fairshare.Bans].
func (m *Model) LimitsNewcomers(client *fairshare.BanKey, now time.Time) (rule uint32, limited bool) {
	if rules := m.LimitingRules(client, now); len(rules) > 0 {
		return rules[0], true
	}
	return 0, false
}

// LimitingRules returns the rules that limit the newcomers of a client's network. LimitsNewcomers returns one of them.
func (m *Model) LimitingRules(client *fairshare.BanKey, now time.Time) (rules []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rule := range uint32(len(m.names)) {
		if m.bannedAround(*client, rule, false, now) >= clientsThatLimit {
			rules = append(rules, rule)
		}
	}
	return rules
}

// bannedAround returns how many clients of the IPv6 network of a client are
// banned by a rule.
func (m *Model) bannedAround(client fairshare.BanKey, rule uint32, dryRun bool, now time.Time) (n int) {
	for _, b := range m.bans {
		if b.key.IsIPv6Client() && b.key.Network() == client.Network() && b.rule == rule && b.dryRun == dryRun &&
			b.until.After(now) {
			n++
		}
	}
	return n
}

// CountRefusal implements [fairshare.Bans].
func (m *Model) CountRefusal(r *fairshare.Refusal, reached bool) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	length := m.count(r, reached)
	if length > 0 && r.Bits6 > network.Bits6 && r.Key.IsIPv6Client() &&
		m.bannedAround(r.Key, r.Rule, r.DryRun, r.At) >= clientsThatBan {
		ofNetwork := *r
		ofNetwork.Key = r.Key.Network()
		length = max(length, m.count(&ofNetwork, true))
	}
	return length
}

func (m *Model) count(r *fairshare.Refusal, reached bool) time.Duration {
	i := slices.IndexFunc(m.bans, func(b *ban) bool { return b.key == r.Key && b.rule == r.Rule })
	if i >= 0 && m.bans[i].dryRun != r.DryRun { // bans in dry run have no effect on enforced ones
		m.bans = slices.Delete(m.bans, i, i+1)
		i = -1
	}
	if i < 0 {
		if !reached {
			return 0
		}
		i = len(m.bans)
		m.bans = append(m.bans, &ban{key: r.Key, rule: r.Rule, dryRun: r.DryRun})
	}
	b := m.bans[i]
	if b.until.After(r.At) {
		return 0
	}
	if forgiven := int64(r.At.Sub(b.since) / r.Terms.ForgiveAfter()); forgiven > 0 {
		b.count = max(0, b.count-forgiven)
	}
	if r.At.After(b.since) {
		b.since = r.At
	}
	if !reached {
		return 0
	}
	length := r.Terms.Length(r.Key, m.names[r.Rule], int(b.count))
	b.count++
	b.began, b.until, b.since = r.At, r.At.Add(length), r.At.Add(length)
	return length
}

// Lift implements [fairshare.Bans].
func (m *Model) Lift(client fairshare.ClientID, at time.Time, each func(fairshare.BanKey, string)) (lifted int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bans = slices.DeleteFunc(m.bans, func(b *ban) bool {
		if b.began.After(at) || !b.key.Within(client) || b.count == 0 && !b.until.After(at) {
			return false
		}
		if b.until.After(at) && !b.dryRun {
			lifted++
		}
		if each != nil {
			each(b.key, m.names[b.rule])
		}
		return true
	})
	return lifted
}
