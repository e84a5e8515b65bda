package livepolicy

import (
	"net/netip"
	"sync"

	"fairshare/pgregistry"
)

// mostNames bounds the addresses of bots that wait to be written.
const mostNames = 256

// confirmedNames are addresses of bots that the DNS has confirmed, for the other servers of a group. A client cannot
// add addresses: their names are under the domains of bots. It is safe for concurrent use.
type confirmedNames struct {
	mu  sync.Mutex
	all []pgregistry.ConfirmedName
}

// add adds one, unless there are too many.
func (c *confirmedNames) add(addr netip.Addr, names []string) {
	c.put(pgregistry.ConfirmedName{Addr: addr, Names: names})
}

func (c *confirmedNames) put(some ...pgregistry.ConfirmedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, some[:min(len(some), mostNames-len(c.all))]...)
}

// take returns and removes all.
func (c *confirmedNames) take() (all []pgregistry.ConfirmedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.all = c.all, nil
	return all
}

// learnName takes an address of a bot that another server has asked the DNS for.
func (p *Policy) learnName(c pgregistry.ConfirmedName) {
	if dns := p.Current().Bots.DNS(); dns != nil {
		dns.Learn(c.Addr, c.Names, c.Ago)
	}
}
