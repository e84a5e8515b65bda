package proxy

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// What a zero Config.Session and a zero Config.BotSession mean.
const (
	DefaultSession    = 30 * time.Minute
	DefaultBotSession = 2 * time.Minute
)

// ours begins the names of the headers that only this proxy sends.
const ours = "Fairshare-"

// Names of the headers by which the upstream is told who asks, as the guard
// judged it.
const (
	clientHeader  = ours + "Client"      // the address; absent when it is not known
	botHeader     = ours + "Bot"         // the name of the bot; absent when it is none
	stateHeader   = ours + "Bot-State"   // known, pending, verified or forged; absent when it is no bot
	sessionHeader = ours + "Session-Ttl" // seconds that a session is worth keeping when nothing more is asked in it
)

// states are the values of Fairshare-Bot-State.
var states = func() (values [fairshare.Forged + 1][]string) {
	for s := range values {
		values[s] = []string{fairshare.BotState(s).String()}
	}
	return values
}()

// who sets the headers that tell who asks. last is the last address in
// X-Forwarded-For, whose text serves again if it is the client's. one has room
// for a value each of the client and the bot.
func (s *setup) who(h http.Header, w http.ResponseWriter, last string, one []string) {
	asker, ok := httpguard.Who(w)
	if !ok {
		return
	}
	if asker.Addr.IsValid() {
		one[0] = text(asker.Addr, last)
		h[clientHeader] = one[0:1:1]
	}
	if asker.Bot.State == fairshare.NoBot || asker.Bot.State > fairshare.Forged {
		h[sessionHeader] = s.session
		return
	}
	one[1] = asker.Bot.Name
	h[botHeader], h[stateHeader], h[sessionHeader] = one[1:2:2], states[asker.Bot.State], s.botSession
}

// text returns an address as text: other, if that is the same.
func text(addr netip.Addr, other string) string {
	var space [64]byte
	b := addr.AppendTo(space[:0])
	if string(b) == other {
		return other
	}
	return string(b)
}

// last returns the last item of a list.
func last(list string) string {
	return strings.TrimLeft(list[strings.LastIndexByte(list, ',')+1:], " \t")
}
