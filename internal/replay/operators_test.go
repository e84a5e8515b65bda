package replay

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"fairshare"
)

// testWords is what operators have said, looked through one by one.
type testWords struct {
	said   []fairshare.Said
	labels []fairshare.Label
}

func (w *testWords) word(addr netip.Addr, bot fairshare.Bot, now time.Time) (word fairshare.Word) {
	longest := -1
	for _, s := range w.said {
		if !s.Until.IsZero() && !now.Before(s.Until) {
			continue
		}
		bits := s.Client.Prefix.Bits()
		switch {
		case s.Client.Bot != "":
			bits = 0 // an address is nearer than a bot
			if !strings.EqualFold(s.Client.Bot, bot.Name) || longest >= 0 {
				continue
			}
		case !s.Client.Prefix.Contains(addr) || bits < longest:
			continue
		}
		longest = bits
		word.Action, word.Wait = s.Action, 0
		if s.Action == fairshare.Refuse {
			word.Wait = min(s.Until.Sub(now), s.Until.Sub(s.Since))
		}
	}
	for _, l := range w.labels {
		if l.Client.Prefix.IsValid() && l.Client.Prefix.Contains(addr) || l.Client.Bot != "" && l.Client.Bot == bot.Name && bot.State == fairshare.Verified && !bot.Steered {
			word.Labels = append(word.Labels, l.Name)
		}
	}
	return word
}

func clientID(t interface{ Fatal(...any) }, text string) fairshare.ClientID {
	id, err := fairshare.ParseClientID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// randomWords returns words about some of the test's clients. Their ends are
// in the time of the test's logs.
func randomWords(t interface{ Fatal(...any) }, rnd *rand.Rand, begin time.Time) *testWords {
	w := &testWords{}
	for _, text := range []string{"192.0.2.1", "192.0.2.0/24", "198.51.100.7", "203.0.113.5", "2001:db8::/64", "2001:db8::/47", "2001:db8:7::/49", "10.0.0.0/8", "goodbot", "curl"} {
		id := clientID(t, text)
		if rnd.IntN(3) == 0 {
			since := begin.Add(time.Duration(rnd.IntN(1200)-600) * time.Second)
			s := fairshare.Said{Client: id, Since: since, Action: one(rnd, fairshare.Allow, fairshare.Refuse, fairshare.Refuse, fairshare.Block)}
			if s.Action == fairshare.Refuse || s.Action == fairshare.Allow && rnd.IntN(2) == 0 {
				s.Until = begin.Add(time.Duration(rnd.IntN(900))*time.Second + time.Duration(rnd.IntN(1e9)))
				if !s.Until.After(since) {
					s.Since = s.Until.Add(-time.Minute)
				}
			}
			w.said = append(w.said, s)
		}
		for _, name := range []string{"partner", "good-partner", "slow"} {
			if rnd.IntN(4) == 0 {
				w.labels = append(w.labels, fairshare.Label{Client: id, Name: name})
			}
		}
	}
	return w
}
