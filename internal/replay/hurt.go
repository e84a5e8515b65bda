package replay

import (
	"cmp"
	"slices"

	"fairshare"
)

// A HurtClient is a client that looks like a person and was refused or blocked.
type HurtClient struct {
	TopClient
	Rules []HurtBy `json:"rules"` // that refused or blocked it, the most refusals first
}

// A HurtBy has the effect of one rule on a client.
type HurtBy struct {
	Rule     string `json:"rule"`
	Requests int64  `json:"requests"` // refused or blocked
	Method   string `json:"method"`   // of the first of these; "" if unknown
	Path     string `json:"path"`     // of the first of these, without the query; "" if unknown
}

// A method is a usual method of HTTP; 0 is any other.
type method uint8

var methods = [...]string{"", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"}

func methodOf(s string) method { return method(max(0, slices.Index(methods[:], s))) }

// addHurt adds the people that were refused most.
func (rec *recorder) addHurt(r *Report) {
	r.People.Named = []HurtClient{}
	refusals := func(cl *ranked[client]) int64 {
		refused, blocked := rec.refusalsOf(cl)
		return refused + blocked
	}
	var hurt []*ranked[client]
	for i := range rec.clients.n {
		if cl := rec.clients.at(i); cl.facts.effects != 0 && refusals(cl) > 0 && rec.person(cl) {
			hurt = append(hurt, cl)
		}
	}
	slices.SortFunc(hurt, func(a, b *ranked[client]) int {
		return cmp.Or(cmp.Compare(refusals(b), refusals(a)), a.facts.compare(&b.facts))
	})
	for _, cl := range hurt[:min(len(hurt), rec.opts.Top)] {
		h := HurtClient{TopClient: rec.top(cl)}
		for k := cl.facts.effects; k != 0; k = rec.effects[k].next {
			e := &rec.effects[k]
			if rec.actionOf(e.row) == fairshare.Allow {
				continue
			}
			by := HurtBy{Rule: rec.opts.nameOf(e.row), Requests: int64(e.count), Method: methods[e.method]}
			if p := rec.paths.find(e.path); p != nil {
				by.Path = p.facts.text
			}
			h.Rules = append(h.Rules, by)
		}
		slices.SortFunc(h.Rules, func(a, b HurtBy) int {
			return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Rule, b.Rule))
		})
		r.People.Named = append(r.People.Named, h)
	}
}
