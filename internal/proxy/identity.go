package proxy

import (
	"net/http"
	"time"

	"fairshare"
)

// The defaults of Config.Session and Config.BotSession.
const (
	DefaultSession    = 30 * time.Minute
	DefaultBotSession = 2 * time.Minute
)

// ours is the prefix of the headers that only this proxy sends.
const ours = "Fairshare-"

// Headers that report the client to the upstream, as the guard judged it.
const (
	clientHeader  = ours + "Client"      // the address; absent if unknown
	botHeader     = ours + "Bot"         // the name of the bot; absent if the client is not a bot
	stateHeader   = ours + "Bot-State"   // known, pending, verified or forged; absent if the client is not a bot
	sessionHeader = ours + "Session-Ttl" // seconds after which an idle session may be deleted
)

// states are the values of Fairshare-Bot-State.
var states = func() (values [fairshare.Forged + 1][]string) {
	for s := range values {
		values[s] = []string{fairshare.BotState(s).String()}
	}
	return values
}()

// setIdentity sets the headers that report the client.
func (s *setup) setIdentity(h http.Header, c *client) {
	if !c.judged {
		return
	}
	if addr := c.value(addrValue); addr != nil {
		h[clientHeader] = addr
	}
	if c.asker.Bot.State == fairshare.NoBot || c.asker.Bot.State > fairshare.Forged {
		h[sessionHeader] = s.session
		return
	}
	c.values[botValue] = c.asker.Bot.Name
	h[botHeader], h[stateHeader], h[sessionHeader] = c.values[botValue:], states[c.asker.Bot.State], s.botSession
}
