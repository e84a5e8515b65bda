package logins

import (
	"slices"

	"fairshare"
)

// An agent is a user agent of unknown clients that failed or were refused while a form was under attack.
type agent struct {
	hash    uint32 // 0: none
	count   int
	clients [fleet]uint64 // hashes of the first clients, as many as count
}

// fleet is the number of clients from which on a user agent is that of the attack.
const fleet = 5

const comeAgainAfter = 4 // seconds after which a client may open a form again

// noteAgent notes that an unknown client failed or was refused. A new one replaces a user agent that the fewest
// clients had, of which at most fleet are counted.
func (w *Watcher) noteAgent(a *Attempt) {
	if a.class != unknown || !a.posted {
		return
	}
	hash := w.agentOf(a.userAgent)
	least := &w.agents[0]
	for i := range w.agents {
		g := &w.agents[i]
		if g.hash == hash {
			least = g
			break
		}
		if g.count < least.count {
			least = g
		}
	}
	if least.hash != hash {
		*least = agent{hash: hash}
	}
	if least.count < fleet && !slices.Contains(least.clients[:least.count], a.client.hash) {
		least.clients[least.count] = a.client.hash
		least.count++
	}
}

// forgetAgent notes that a client with this user agent has logged in.
func (w *Watcher) forgetAgent(hash uint32) {
	for i := range w.agents {
		if g := &w.agents[i]; g.hash == hash {
			*g = agent{}
		}
	}
}

// isOfFleet reports whether many clients with a user agent failed or were refused, and none has logged in since.
func (w *Watcher) isOfFleet(hash uint32) bool {
	for i := range w.agents {
		if g := &w.agents[i]; g.hash == hash && g.count == fleet {
			return true
		}
	}
	return false
}

// mustComeAgain reports whether a client that was not refused here has to open the form a second time. A browser does
// so by itself, because the answer says it; the programs of a fleet hardly ever do.
func (w *Watcher) mustComeAgain(a *Attempt, now int64) bool {
	e := w.put(a.subject, now)
	if first := int64(e.askedAt); now >= first+comeAgainAfter && now < first+day {
		return false
	}
	if int64(e.askedAt)+day <= now {
		e.askedAt = uint32(now)
	}
	return true
}

// sendsLanguage reports whether a request has the header that nearly every browser sends. A log does not hold it.
func sendsLanguage(req *fairshare.Request) bool {
	return req.Header != nil && len(req.Header.Values("Accept-Language")) > 0
}
