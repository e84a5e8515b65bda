package replay

import (
	"math"
	"slices"
	"strings"
	"time"

	"fairshare/internal/census"
)

// A load says how much a bot, client or user agent used in each hour, so that the effect of a budget
// for an hour can be estimated without another run.
type load []hourLoad

type hourLoad struct {
	hour int64 // since the Unix epoch
	usage
}

const (
	// loadedFrom is from which request on the hours of a client or user agent are kept: most have
	// fewer. Those before count in the hour of this one. No budget is smaller, so that adds nothing
	// to what is above it.
	loadedFrom = 60
	mostHours  = 1 << 18 // of all loads together: 8 MB
)

// addLoad adds a line at a time, Unix ns. A line that is a little late counts in the latest hour.
func (rec *recorder) addLoad(l *load, at int64, u usage) {
	hour := at / int64(time.Hour)
	if n := len(*l); n == 0 || (*l)[n-1].hour < hour {
		if rec.hours >= mostHours {
			rec.hoursFull = true
			return
		}
		rec.hours++
		*l = append(*l, hourLoad{hour: hour})
	}
	(*l)[len(*l)-1].usage.add(u)
}

// addLoads adds a line to the loads of its bot, client and user agent. Their counts have it already.
func (rec *recorder) addLoads(it *item, cl *ranked[client], ag *ranked[agent], at int64, u usage) {
	if it.bot != 0 {
		rec.addLoad(&rec.botCounts[it.bot-1].load, at, u)
	}
	switch {
	case cl.facts.load != 0:
		rec.addLoad(&rec.clientLoads[cl.facts.load-1], at, u)
	case cl.count >= loadedFrom:
		rec.clientLoads = append(rec.clientLoads, nil)
		cl.facts.load = uint32(len(rec.clientLoads))
		rec.addLoad(&rec.clientLoads[cl.facts.load-1], at, usage{int64(cl.count), cl.facts.bytes, cl.facts.time})
	}
	switch {
	case ag.facts.load != nil:
		rec.addLoad(&ag.facts.load, at, u)
	case ag.count >= loadedFrom && !ag.facts.browser:
		rec.addLoad(&ag.facts.load, at, usage{int64(ag.count), ag.facts.bytes, ag.facts.time})
	}
}

// A Taker is a bot, client or user agent with its use in each hour.
type Taker struct {
	Name     string // of the bot, or the user agent; the address of a client
	Bot      string // of a user agent or client; "" if none is known
	Clients  int64  // of a user agent: that send it most
	Errors   int64  // of a user agent: answers 4xx
	Requests int64  // all
	Passed   Usage  // what the policy let pass, estimated by the part of the requests
	Program  bool   // a client that behaves as only programs do, see behavior.isProgram

	load load
}

// Loads has the parts of a report from which rules are made. It is not a part of the JSON form.
type Loads struct {
	Bots    map[string]*Taker // by name, all states together
	Clients map[string]*Taker // those with many requests, by address
	Agents  []Taker           // that are not a browser's, with many requests
	Full    bool              // some hours are missing
}

// Excess returns how much of a taker's use is above an allowance of requests, bytes or nanoseconds
// in each hour. It estimates what such a limit refuses.
func Excess(takers []*Taker, resource string, allowance int64) Usage {
	var all load
	for _, t := range takers {
		all = append(all, t.load...)
	}
	slices.SortFunc(all, func(a, b hourLoad) int { return int(a.hour - b.hour) })
	var sum usage
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].hour == all[0].hour {
			n++
		}
		var hour usage
		for _, h := range all[:n] {
			hour.add(h.usage)
		}
		all = all[n:]
		used := hour.requests
		switch resource {
		case "bytes":
			used = hour.bytes
		case "time":
			used = hour.time
		}
		if used <= allowance {
			continue
		}
		part := 1 - float64(allowance)/float64(used)
		sum.add(usage{int64(part * float64(hour.requests)), int64(part * float64(hour.bytes)),
			int64(part * float64(hour.time))})
	}
	return sum.report()
}

// Busiest returns how many requests of a taker came in its n busiest hours, and in all its hours.
func (t *Taker) Busiest(n int) (busiest, all int64) {
	var hours []int64
	for _, h := range t.load {
		hours = append(hours, h.requests)
		all += h.requests
	}
	slices.Sort(hours)
	for _, h := range hours[max(0, len(hours)-n):] {
		busiest += h
	}
	return busiest, all
}

// passed estimates what passed of figures, by the part of the requests.
func passed(u usage, refused int64) Usage {
	part := 1 - float64(min(refused, u.requests))/float64(max(u.requests, 1))
	return Usage{u.requests - min(refused, u.requests), int64(float64(u.bytes) * part),
		part * time.Duration(u.time).Seconds()}
}

// addTakers adds the takers to a report.
func (rec *recorder) addTakers(r *Report) {
	l := &Loads{Bots: map[string]*Taker{}, Clients: map[string]*Taker{}, Full: rec.hoursFull}
	for i := range rec.botCounts {
		c := &rec.botCounts[i]
		name := rec.bots.bot(botID(i + 1)).Name
		t := l.Bots[name]
		if t == nil {
			t = &Taker{Name: name}
			l.Bots[name] = t
		}
		t.Requests += c.requests
		t.load = append(t.load, c.load...)
	}
	clients := map[uint64]int64{}
	for i := range rec.clients.n {
		cl := rec.clients.at(i)
		clients[cl.facts.agent]++
		if cl.facts.load == 0 {
			continue
		}
		refused, blocked := rec.refusalsOf(cl)
		name := cl.facts.address().String()
		l.Clients[name] = &Taker{Name: name, Bot: rec.bots.bot(cl.facts.bot).Name, Requests: int64(cl.count),
			Passed:  passed(usage{int64(cl.count), cl.facts.bytes, cl.facts.time}, refused+blocked),
			Program: rec.isProgram(cl), load: rec.clientLoads[cl.facts.load-1]}
	}
	for i := range rec.agents.n {
		ag := rec.agents.at(i)
		if ag.facts.browser || ag.facts.load == nil || ag.over > 0 || len(ag.facts.text) >= maxAgent ||
			census.Browser(ag.facts.text) {
			continue
		}
		l.Agents = append(l.Agents, Taker{Name: ag.facts.text, Bot: rec.bots.bot(ag.facts.bot).Name,
			Clients: clients[ag.hash], Errors: int64(ag.facts.errors), Requests: int64(ag.count),
			Passed: passed(usage{int64(ag.count), ag.facts.bytes, ag.facts.time}, int64(ag.facts.refused)),
			load:   ag.facts.load})
	}
	slices.SortFunc(l.Agents, func(a, b Taker) int {
		if c := a.Passed.compare(b.Passed, r.Total); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	r.Loads = l
}

func saturatingIncrease(n *uint32) {
	if *n != math.MaxUint32 {
		*n++
	}
}
