package replay

import (
	"math"

	"fairshare"
)

// A botID is the number of a bot's name and state in a run; 0 means no bot.
type botID uint16

// A botList has the bots of a run. The judge adds them; others read it when the judge has ended.
type botList struct {
	ids   map[botName]botID
	named []fairshare.Bot // by botID−1
	last  struct {
		name botName
		id   botID
	}
}

type botName struct {
	name  string
	state fairshare.BotState
}

const (
	mostBots = 1024        // pairs of name and state that are distinguished
	manyBots = "all other" // the name of bots beyond mostBots
)

// id returns the number of a bot; 0 if it has no name.
func (l *botList) id(b *fairshare.Bot) botID {
	if b.Name == "" {
		return 0
	}
	if name := (botName{b.Name, b.State}); l.last.name != name {
		l.last.name, l.last.id = name, l.find(b)
	}
	return l.last.id
}

// find returns the number of a bot, which gets one if it has none.
func (l *botList) find(b *fairshare.Bot) botID {
	key := botName{b.Name, b.State}
	if id := l.ids[key]; id != 0 {
		return id
	}
	if len(l.named) >= mostBots {
		key.name = manyBots
		if id := l.ids[key]; id != 0 {
			return id
		}
		b = &fairshare.Bot{Name: manyBots, State: b.State}
	}
	if l.ids == nil {
		l.ids = map[botName]botID{}
	}
	l.named = append(l.named, *b)
	l.ids[key] = botID(len(l.named))
	return botID(len(l.named))
}

// bot returns the bot with that number.
func (l *botList) bot(id botID) fairshare.Bot {
	if id == 0 {
		return fairshare.Bot{}
	}
	return l.named[id-1]
}

// A botCount has the figures of one name and state.
type botCount struct {
	usage
	refused, blocked int64
	load             load
	meant            int64  // of refused and blocked: by an operator's ban
	clients          int64  // as long as they are counted exactly
	seen             sketch // afterwards
}

// A member is a client that was recognized as a bot.
type member struct {
	client uint64
	bot    botID
}

// bot counts a line of a bot.
func (rec *recorder) bot(it *item, cl *ranked[client], u usage) {
	for int(it.bot) > len(rec.botCounts) {
		rec.botCounts = append(rec.botCounts, botCount{})
	}
	c := &rec.botCounts[it.bot-1]
	c.usage.add(u)
	switch it.enforced.action {
	case fairshare.Refuse:
		c.refused++
	case fairshare.Block:
		c.blocked++
	}
	if it.enforced.rule == rec.operator {
		c.meant++
	}
	if it.verifiable() {
		rec.pending++
	}
	if cl.facts.counted != it.bot {
		cl.facts.counted = it.bot
		rec.join(member{it.client, it.bot})
	}
}

// join counts a client of a bot. Each client counts once while there is memory for it.
func (rec *recorder) join(m member) {
	if rec.members != nil {
		if _, known := rec.members[m]; known {
			return
		}
		if len(rec.members) < rec.bounds.members {
			rec.members[m] = struct{}{}
			rec.botCounts[m.bot-1].clients++
			return
		}
		for other := range rec.members {
			rec.botCounts[other.bot-1].see(other.client)
		}
		rec.members = nil
	}
	rec.botCounts[m.bot-1].see(m.client)
}

func (c *botCount) see(client uint64) {
	if c.seen.regs == nil {
		c.seen = newSketch()
	}
	c.seen.add(client)
}

// addBytes adds byte counts without overflow: a log may have any numbers.
func addBytes(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + max(b, 0)
}
