package banexport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairshare/internal/prose"
)

// NFTables keeps bans in sets of a table of its own, inet fairshare. Elements have
// timeouts, so that the kernel ends bans by itself.
type NFTables struct {
	Reject bool     // connections, with a reset or an ICMP message; otherwise packets are dropped
	Ports  []uint16 // of TCP and UDP; nil means all
	Now    func() time.Time

	tried bool // a transaction was begun: the table may be in the kernel
	made  bool
	last  []Ban
}

var _ Sink = (*NFTables)(nil)

// table is the name of the table.
const table = "inet fairshare"

const (
	almostEnded = 3 * time.Second // such an element is not removed: it may end first, which is an error
	slack       = 5 * time.Second // by which timeouts may differ
)

func (*NFTables) Name() string         { return "nftables" }
func (*NFTables) Every() time.Duration { return 0 }

// atATime is how many elements a transaction changes at most: the kernel refuses larger
// messages from processes without all capabilities.
const atATime = 2000

// Apply implements Sink. Each call is at most one transaction.
func (t *NFTables) Apply(ctx context.Context, bans []Ban, check bool) error {
	bans = withoutOverlaps(bans)
	if check && t.made {
		same, err := t.holds(ctx, t.last)
		if err != nil {
			return err
		}
		t.made = same
	}
	last := t.last
	if !t.made {
		last = nil
	}
	target := step(last, bans)
	script := t.whole(target)
	if t.made {
		script = t.changes(target)
	}
	if script != nil {
		t.tried = true
		_, err := t.nft(ctx, script)
		if err != nil && t.made { // maybe another program has changed the table
			target = step(nil, bans)
			_, err = t.nft(ctx, t.whole(target))
		}
		if err != nil {
			t.made = false
			return err
		}
	}
	if t.made, t.last = true, target; len(target) != len(bans) || !slices.Equal(target, bans) {
		return errMore
	}
	return nil
}

// step returns bans, or if they differ from last by more than one transaction can change,
// what comes after the first one.
func step(last, bans []Ban) []Ban {
	added, removed := difference(last, bans)
	if len(added)+len(removed) <= atATime {
		return bans
	}
	removed = removed[:min(len(removed), atATime/2)]
	added = added[:min(len(added), atATime/2)]
	held := make(map[netip.Prefix]Ban, len(last)+len(added))
	for _, b := range last {
		held[b.Prefix] = b
	}
	for _, b := range removed {
		delete(held, b.Prefix)
	}
	for _, b := range added {
		held[b.Prefix] = b
	}
	return withoutOverlaps(slices.SortedFunc(maps.Values(held), comparePrefixes))
}

// Clear implements Sink. It also removes the table of a transaction that was interrupted.
func (t *NFTables) Clear(ctx context.Context) error {
	if !t.tried {
		return nil
	}
	t.made = false
	_, err := t.nft(ctx, []byte("add table "+table+"\ndelete table "+table+"\n"))
	return err
}

// nft runs nft with a script.
func (t *NFTables) nft(ctx context.Context, script []byte) ([]byte, error) {
	out, err := run(ctx, script, "nft", "-f", "-")
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		return nil, fmt.Errorf("nft may not change the firewall: it needs CAP_NET_ADMIN "+
			"(AmbientCapabilities=CAP_NET_ADMIN in the unit, or root): %w", err)
	}
	return out, err
}

// sets returns the names of the sets: single addresses, and networks.
var setNames = [4]string{"ipv4", "ipv4_networks", "ipv6", "ipv6_networks"}

func setOf(p netip.Prefix) int {
	set := 0
	if p.Addr().Is6() {
		set = 2
	}
	if !p.IsSingleIP() {
		set++
	}
	return set
}

// withoutOverlaps removes bans of networks within another banned network, which a set
// cannot hold. They come back when the wider ban has ended.
func withoutOverlaps(bans []Ban) []Ban {
	var wider netip.Prefix
	return slices.DeleteFunc(slices.Clone(bans), func(b Ban) bool {
		if b.Prefix.IsSingleIP() {
			return false
		}
		if wider.IsValid() && wider.Overlaps(b.Prefix) {
			return true
		}
		wider = b.Prefix
		return false
	})
}

// whole returns the script that makes the table again with all bans.
func (t *NFTables) whole(bans []Ban) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "add table %s\ndelete table %s\ntable %s {\n", table, table, table)
	var members [4][]Ban
	for _, ban := range bans {
		set := setOf(ban.Prefix)
		members[set] = append(members[set], ban)
	}
	for i, name := range setNames {
		family, flags := "ipv4_addr", "timeout"
		if i >= 2 {
			family = "ipv6_addr"
		}
		if i%2 == 1 {
			flags = "interval, timeout"
		}
		fmt.Fprintf(&b, " set %s {\n  type %s\n  flags %s\n }\n", name, family, flags)
	}
	verdict := "drop"
	if t.Reject {
		verdict = "reject"
	}
	b.WriteString(" chain prerouting {\n  type filter hook prerouting priority mangle; policy accept;\n")
	port := ""
	if t.Ports != nil {
		var ports []string
		for _, p := range t.Ports {
			ports = append(ports, fmt.Sprint(p))
		}
		port = "meta l4proto { tcp, udp } th dport { " + strings.Join(ports, ", ") + " } "
	}
	for i, name := range setNames {
		family := "ip"
		if i >= 2 {
			family = "ip6"
		}
		fmt.Fprintf(&b, "  %s%s saddr @%s %s\n", port, family, name, verdict)
	}
	b.WriteString(" }\n}\n")
	for i := range members {
		t.write(&b, "add", i, members[i])
	}
	return b.Bytes()
}

// changes returns the script that changes what has changed; nil if nothing has.
func (t *NFTables) changes(bans []Ban) []byte {
	added, removed := difference(t.last, bans)
	now := t.Now()
	changed := map[netip.Prefix]bool{}
	for _, b := range added {
		changed[b.Prefix] = true
	}
	for _, b := range t.last { // an element is replaced to change its timeout
		if changed[b.Prefix] {
			removed = append(removed, b)
		}
	}
	removed = slices.DeleteFunc(removed, func(b Ban) bool {
		return !b.Until.IsZero() && b.Until.Sub(now) < almostEnded && !changed[b.Prefix]
	})
	var b bytes.Buffer
	for i := range setNames {
		of := func(all []Ban) []Ban {
			return slices.DeleteFunc(slices.Clone(all), func(b Ban) bool { return setOf(b.Prefix) != i })
		}
		t.write(&b, "delete", i, of(removed))
		t.write(&b, "add", i, of(added))
	}
	if b.Len() == 0 {
		return nil
	}
	return b.Bytes()
}

// write writes a command about elements of a set.
func (t *NFTables) write(b *bytes.Buffer, verb string, set int, bans []Ban) {
	const atOnce = 1000
	now := t.Now()
	for part := range slices.Chunk(bans, atOnce) {
		fmt.Fprintf(b, "%s element %s %s { ", verb, table, setNames[set])
		for i, ban := range part {
			if i > 0 {
				b.WriteString(", ")
			}
			if set%2 == 1 {
				b.WriteString(ban.Prefix.String())
			} else {
				b.WriteString(ban.Prefix.Addr().String())
			}
			if verb == "add" && !ban.Until.IsZero() {
				fmt.Fprintf(b, " timeout %ds", max(1, int64((ban.Until.Sub(now)+time.Second-1)/time.Second)))
			}
		}
		b.WriteString(" }\n")
	}
}

// holds reports whether the table holds exactly these bans.
func (t *NFTables) holds(ctx context.Context, bans []Ban) (bool, error) {
	out, err := run(ctx, nil, "nft", "-j", "list", "table", "inet", "fairshare")
	if err != nil {
		if strings.Contains(err.Error(), "No such file") { // somebody has removed it
			return false, nil
		}
		return false, err
	}
	held, rules, err := elements(out)
	if err != nil || rules != len(setNames) {
		return false, err
	}
	now := t.Now()
	wanted := 0
	for _, b := range bans {
		left := time.Duration(0)
		if !b.Until.IsZero() {
			if left = b.Until.Sub(now); left < slack {
				continue
			}
		}
		wanted++
		expires, found := held[b.Prefix]
		if !found || (expires == 0) != (left == 0) || (expires-left).Abs() > slack {
			return false, nil
		}
	}
	for p, expires := range held {
		if expires == 0 || expires >= slack {
			if _, found := slices.BinarySearchFunc(bans, Ban{Prefix: p}, comparePrefixes); !found {
				return false, nil
			}
		}
	}
	return true, nil
}

// elements returns the elements of the sets of a listed table with the time until each
// ends, 0 for never, and the number of rules.
func elements(list []byte) (held map[netip.Prefix]time.Duration, rules int, err error) {
	var parsed struct {
		NFTables []struct {
			Set *struct {
				Elem []json.RawMessage `json:"elem"`
			} `json:"set"`
			Rule *struct{} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(list, &parsed); err != nil {
		return nil, 0, fmt.Errorf("nft: its list cannot be read: %w", err)
	}
	held = map[netip.Prefix]time.Duration{}
	for _, object := range parsed.NFTables {
		if object.Rule != nil {
			rules++
		}
		if object.Set == nil {
			continue
		}
		for _, raw := range object.Set.Elem {
			var timed struct {
				Elem *struct {
					Val     json.RawMessage `json:"val"`
					Expires int64           `json:"expires"`
				} `json:"elem"`
			}
			value, expires := raw, int64(0)
			if json.Unmarshal(raw, &timed) == nil && timed.Elem != nil {
				value, expires = timed.Elem.Val, max(1, timed.Elem.Expires)
			}
			prefix, ok := prefixOf(value)
			if !ok {
				return nil, 0, fmt.Errorf("nft: its list has %s", prose.Cut(string(raw), 80))
			}
			held[prefix] = time.Duration(expires) * time.Second
		}
	}
	return held, rules, nil
}

// prefixOf reads an element: "192.0.2.1" or {"prefix": {"addr": "192.0.2.0", "len": 24}}.
func prefixOf(raw json.RawMessage) (netip.Prefix, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		addr, err := netip.ParseAddr(text)
		return netip.PrefixFrom(addr, addr.BitLen()), err == nil
	}
	var of struct {
		Prefix struct {
			Addr netip.Addr `json:"addr"`
			Len  int        `json:"len"`
		} `json:"prefix"`
	}
	if json.Unmarshal(raw, &of) != nil || !of.Prefix.Addr.IsValid() {
		return netip.Prefix{}, false
	}
	p, err := of.Prefix.Addr.Prefix(of.Prefix.Len)
	return p, err == nil
}
