package proxy

import (
	"time"

	"fairshare"
	"fairshare/internal/outbound"
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

// appendIdentity appends the headers that report the client.
func (s *setup) appendIdentity(own []outbound.Field, c *client) []outbound.Field {
	if !c.judged {
		return own
	}
	if c.addr != "" {
		own = append(own, outbound.Field{Name: clientHeader, Value: c.addr})
	}
	if c.asker.Bot.State == fairshare.NoBot || c.asker.Bot.State > fairshare.Forged {
		return append(own, outbound.Field{Name: sessionHeader, Value: s.session})
	}
	return append(own, outbound.Field{Name: botHeader, Value: c.asker.Bot.Name},
		outbound.Field{Name: stateHeader, Value: c.asker.Bot.State.String()},
		outbound.Field{Name: sessionHeader, Value: s.botSession})
}
