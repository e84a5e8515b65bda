package httpguard

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"fairshare"
)

// A Report describes one refusal or block.
type Report struct {
	Request    *fairshare.Request // as judged
	HTTP       *http.Request      // as received; its context is the request's
	Finding    fairshare.Finding  // the rule that refused or blocked, and its figures
	DryRun     bool               // the request passed; Status and RetryAfter are what it would have got
	Status     int                // of the answer
	RetryAfter int64              // seconds; 0 when the answer names none
	ID         string             // the reference shown to the client; one for all refusals of a client by a rule

	WaitingRoom bool // the client gets the page of Options.WaitingRoom
}

// LogValue returns what is safe to log: no query, header, cookie or key of a
// limit.
func (r *Report) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("action", r.Finding.Action.String())}
	if r.Finding.Rule != nil {
		attrs = append(attrs, slog.String("rule", r.Finding.Rule.Name))
	}
	if r.Finding.Action == fairshare.Refuse {
		attrs = append(attrs, slog.Duration("wait", r.Finding.Wait))
	}
	if r.DryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	attrs = append(attrs, slog.Int("status", r.Status), slog.String("id", r.ID))
	if req := r.Request; req != nil {
		attrs = append(attrs, clientAttrs(Client{Addr: req.Addr, Via: req.Via, Bot: req.Bot})...)
		attrs = append(attrs, slog.String("method", req.Method), slog.String("host", req.Host),
			slog.String("path", req.Path))
	}
	return slog.GroupValue(attrs...)
}

// A Completion describes one request that was let through and has ended.
type Completion struct {
	Client
	HTTP      *http.Request // as received; its body may be closed, its context ended
	Method    string        // as sent
	Host      string        // as judged
	Path      string        // as judged, without the query
	UserAgent string        // "" when absent
	Time      time.Time     // of arrival
	Took      time.Duration // from when the upstream got the request until it was done; 0 if it did not get it
	CPU       time.Duration // of the upstream; 0 when it is not measured
	Status    int           // that the upstream answered with; 0 when it gave no answer
	Bytes     int64         // of the response body
	Owner     fairshare.Owner
	Fleet     string // as Request.Fleet
}

// LogValue returns what is safe to log: no query, header or cookie.
func (p *Completion) LogValue() slog.Value {
	attrs := append(clientAttrs(p.Client), slog.String("method", p.Method), slog.String("path", p.Path),
		slog.Int("status", p.Status), slog.Int64("bytes", p.Bytes), slog.Duration("took", p.Took))
	if p.CPU != 0 {
		attrs = append(attrs, slog.Duration("cpu", p.CPU))
	}
	return slog.GroupValue(attrs...)
}

var (
	_ slog.LogValuer = (*Report)(nil)
	_ slog.LogValuer = (*Completion)(nil)
)

func clientAttrs(c Client) []slog.Attr {
	attrs := []slog.Attr{slog.String("client", addrText(c.Addr))}
	if c.Via.IsValid() {
		attrs = append(attrs, slog.String("via", addrText(c.Via)))
	}
	if c.Bot.Name != "" {
		attrs = append(attrs, slog.String("bot", c.Bot.Name), slog.String("bot_state", c.Bot.State.String()))
	}
	return attrs
}

func addrText(addr netip.Addr) string {
	if !addr.IsValid() {
		return "unknown"
	}
	return addr.String()
}

// idAlphabet is Crockford's base32, without letters that look like digits.
const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// A referenced is what a reference stands for. It refers to no policy, so that one that was replaced can be freed.
type referenced struct {
	gen       uint64
	rule      string // its name; "" for none
	addr, via netip.Addr
	bot       string // if it is known by its name
}

// reference returns the reference of a refusal. It remembers the last one of a visit: the next refusal is often of
// the same client.
func (g *generation) reference(vis *visit, rule *fairshare.Rule) string {
	req := &vis.req
	of := referenced{gen: g.number, addr: req.Addr, via: req.Via}
	if rule != nil {
		of.rule = rule.Name
	}
	if req.Bot.State == fairshare.Verified && !req.Bot.UserTriggered {
		of.bot = req.Bot.Name
	}
	if vis.referenced != of {
		vis.referenced, vis.reference = of, Reference(g.ReferenceKey, g.guard.Policy(), req, rule)
	}
	return vis.reference
}

// Reference returns the reference of ten characters that a Handler with this
// [Options.ReferenceKey] shows to a refused client. It is the same for all
// refusals of one client by one rule. So an operator finds a client's reference
// even if not every refusal was recorded.
func Reference(key []byte, policy *fairshare.Policy, req *fairshare.Request, rule *fairshare.Rule) string {
	var space [128]byte
	text := append(space[:0], key...)
	if bot := &req.Bot; bot.State == fairshare.Verified && !bot.UserTriggered {
		text = append(text, bot.Name...) // one client, whatever its address
	} else if client := policy.Client(req.Addr); client.IsValid() {
		addr := client.Addr().As16()
		text = append(text, addr[:]...)
	}
	if req.Via.IsValid() {
		peer := req.Via.As16()
		text = append(text, peer[:]...)
	}
	if rule != nil {
		text = append(append(text, 0), rule.Name...)
	}
	hash := sha256.Sum256(text)
	sum := binary.LittleEndian.Uint64(hash[:])
	var id [10]byte
	for i := range id {
		id[i] = idAlphabet[sum&31]
		sum >>= 5
	}
	return string(id[:])
}
