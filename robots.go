package fairshare

import (
	"fmt"
	"strconv"
	"time"
)

// Robots is what the site's robots.txt says about a request of a bot. The zero
// Robots says nothing: the file is not known, has no group for the bot, or the client is
// not a bot.
type Robots struct {
	Group string // the product token of the group that holds, as written; "*" for all bots; "" for none
	Named bool   // the group names the bot; otherwise it is the group "*"

	Disallowed bool   // the bot may not fetch the target
	Line       int    // the line that decided, from 1; 0 if no line did
	Rule       string // this line, such as "Disallow: /private"

	// Delay is the time from one request to the next (Crawl-delay, Request-rate).
	// 0 means that the file does not limit the rate.
	Delay     time.Duration
	DelayLine int // where Delay stands; 0 without one
}

// String describes what the file says about the target, for people.
func (r *Robots) String() string {
	switch {
	case r.Group == "":
		return "robots.txt says nothing about this client"
	case r.Disallowed:
		return fmt.Sprintf("line %d of robots.txt, %s, disallows this for %s", r.Line, strconv.Quote(r.Rule),
			r.subject())
	case r.Line > 0:
		return fmt.Sprintf("line %d of robots.txt, %s, allows this for %s", r.Line, strconv.Quote(r.Rule), r.subject())
	}
	return "no line of robots.txt disallows this for " + r.subject()
}

// Reason describes why a rule that looks at robots.txt refused a request, such as "line 12,
// Disallow: /private". It is "" for other rules.
func (r *Robots) Reason(rule *Rule) string {
	switch {
	case rule == nil || !rule.looksAtRobots():
	case rule.Limit != nil && rule.Limit.CrawlDelay && r.DelayLine > 0:
		return fmt.Sprintf("line %d, a delay of %v", r.DelayLine, r.Delay)
	case r.Line > 0:
		return fmt.Sprintf("line %d, %s", r.Line, r.Rule)
	}
	return ""
}

// looksAtRobots reports whether robots.txt decides whether the rule holds.
func (r *Rule) looksAtRobots() bool {
	return r.Match.Robots != nil || r.Limit != nil && r.Limit.CrawlDelay
}

func (r *Robots) subject() string {
	if !r.Named {
		return "all crawlers"
	}
	return r.Group
}

// RobotsDisallowed is the value of Match.Robots.
const RobotsDisallowed = "disallowed"

// checkRobots returns an error for an unknown value of Match.Robots.
func checkRobots(texts []string) error {
	for _, text := range texts {
		if text != RobotsDisallowed {
			return fmt.Errorf("robots: %s is needed, not %q", RobotsDisallowed, text)
		}
	}
	return nil
}

// holdsRobots reports whether robots.txt disallows the request. A client makes up its user
// agent, so that a permission needs a verified bot that is not user-triggered.
func (c *condition) holdsRobots(req *Request) bool {
	return req.Robots.Disallowed && req.Bot.State != NoBot &&
		(!c.favorable || req.Bot.State == Verified && !req.Bot.UserTriggered)
}

// MaxCrawlDelay is the longest time between two requests that a limit with
// CrawlDelay enforces.
const MaxCrawlDelay = 24 * time.Hour

// crawlDelay returns the time from one request to the next that robots.txt asks
// of a bot, at most MaxCrawlDelay; 0 if it asks for none.
func (r *Request) crawlDelay() time.Duration {
	if r.Bot.State == NoBot {
		return 0
	}
	return min(max(r.Robots.Delay, 0), MaxCrawlDelay)
}

// crawlDelay returns the time between two units of a limit with CrawlDelay.
func (d *decision) crawlDelay(l *Limit) time.Duration {
	delay := d.req.crawlDelay()
	if l.IsCeiling() {
		delay /= provisionalClients
	}
	return max(delay, 1)
}

// describeRobots describes what robots.txt says, and why it may not count.
func describeRobots(req *Request, favorable bool) string {
	r := &req.Robots
	switch {
	case req.Bot.State == NoBot:
		return "no bot, so robots.txt does not count: that"
	case r.Group == "":
		return r.String() + ": that"
	case favorable && (req.Bot.State != Verified || req.Bot.UserTriggered):
		return r.String() + ", where only a verified bot counts: that"
	}
	return r.String() + ": that"
}

// crawlDelayReason explains whether a limit with CrawlDelay holds.
func crawlDelayReason(req *Request) Reason {
	r := &req.Robots
	switch {
	case req.Bot.State == NoBot:
		return Reason{false, "no bot, so the delay of robots.txt does not count"}
	case r.Group == "":
		return Reason{false, r.String()}
	case r.Delay <= 0:
		return Reason{false, "robots.txt sets no delay for " + r.subject()}
	}
	return Reason{true, fmt.Sprintf("line %d of robots.txt asks %s for %v between two requests", r.DelayLine,
		r.subject(), req.crawlDelay())}
}
