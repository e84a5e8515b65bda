package console

import (
	"slices"
	"strings"
	"time"
)

// A Group is the programs that count together, as this program sees it.
type Group struct {
	Name      string        `json:"name"`
	Store     string        `json:"store"`    // its addresses
	Topology  string        `json:"topology"` // single, sentinel or cluster
	Members   []GroupMember `json:"members"`  // alive, this one first
	Away      bool          `json:"away"`     // the store cannot be reached
	AwaySince *time.Time    `json:"away_since"`
	Reason    string        `json:"reason"` // why it is away; or ""
	// Divided is what each limit is divided by while the store is away, if away is share; otherwise 1.
	Divided int `json:"divided"`

	Questions   int64 `json:"questions"`    // requests that waited for the store
	Credit      int64 `json:"credit"`       // requests that passed without
	Refused     int64 `json:"refused"`      // requests that were refused without
	DecidedAway int64 `json:"decided_away"` // while the store was away or late
	Late        int64 `json:"late"`         // had no answer in time
	HandedOver  int64 `json:"handed_over"`  // counts that were reported after the store was away
	Unreadable  int64 `json:"unreadable"`   // states in the store that made no sense
	Replaced    int64 `json:"replaced"`     // updates of a client that needed no decision in the store
	Contended   int64 `json:"contended"`    // updates that another member preceded, so that the store decided

	RoundTrip50 float64 `json:"round_trip_p50_seconds"` // of the last minute
	RoundTrip99 float64 `json:"round_trip_p99_seconds"`
	Pending     int     `json:"pending"`                   // states with something to report
	ClockAhead  float64 `json:"store_clock_ahead_seconds"` // of this machine's clock

	Bans GroupBans `json:"bans"` // that the members share

	Queues []GroupQueue `json:"queues"` // shared upstreams; one without a name if the policy has no sites
}

// A GroupQueue is an upstream whose requests in progress the members share.
type GroupQueue struct {
	Site     string `json:"site"`
	Capacity int    `json:"capacity"` // requests at once, for all members together
	Slots    int    `json:"slots"`    // of these, for this member at present
	Members  int    `json:"members"`  // that share it, with this one
	Leads    bool   `json:"leads"`    // this member finds the capacity
	Away     bool   `json:"away"`     // this member has a fixed part, because it does not hear the others
}

// GroupBans are the bans of all members, as far as this member knows.
type GroupBans struct {
	Stored     int64 `json:"stored"`     // bans and lifts of bans in the store
	Waiting    int   `json:"waiting"`    // of this member, not written to the store yet
	Shared     bool  `json:"shared"`     // this member knows all, and all of its own are known to the others
	Unreadable int64 `json:"unreadable"` // records that made no sense
}

// A GroupMember is one of these programs.
type GroupMember struct {
	ID     string    `json:"id"`
	Name   string    `json:"name"`
	Policy string    `json:"policy"` // members with the same one count the same
	Since  time.Time `json:"since"`
	Self   bool      `json:"self"` // the program that answers
}

// Group returns the group of this program. Its Name is empty if there is none.
func (c *Console) Group() *Group {
	g := &Group{Members: []GroupMember{}, Divided: 1, Queues: []GroupQueue{}}
	f := c.Policy.Figures()
	s := f.Group
	if s == nil {
		return g
	}
	for _, site := range f.Queues() {
		if q := site.Share.Group; q.Members > 0 {
			g.Queues = append(g.Queues, GroupQueue{Site: site.Name, Capacity: q.Capacity, Slots: site.Share.Capacity,
				Members: q.Members, Leads: q.Leads, Away: q.Away})
		}
	}
	slices.SortFunc(g.Queues, func(a, b GroupQueue) int { return strings.Compare(a.Site, b.Site) })
	g.Name, g.Store, g.Topology, g.Away, g.Reason = s.Group, s.Store, s.Topology, s.Away, s.Reason
	if s.Away {
		since := s.AwaySince.UTC()
		g.AwaySince = &since
		if store := c.Policy.Current().File.Store; store != nil && store.Away == "share" {
			g.Divided = max(s.Most, 1)
		}
	}
	for _, m := range s.Members {
		member := GroupMember{ID: m.ID, Name: m.Name, Policy: m.Policy, Since: m.Since.UTC(), Self: m.ID == s.ID}
		if member.Self {
			g.Members = append([]GroupMember{member}, g.Members...)
		} else {
			g.Members = append(g.Members, member)
		}
	}
	g.Questions, g.Credit, g.Refused, g.DecidedAway = s.Questions, s.Credit, s.Refused, s.DecidedAway
	g.Late, g.HandedOver, g.Unreadable, g.Pending = s.Late, s.HandedOver, s.Unreadable, s.Pending
	g.Replaced, g.Contended = s.Replaced, s.Contended
	if b := f.Shared; b != nil {
		g.Bans = GroupBans{Stored: b.Stored, Waiting: b.Waiting, Shared: b.Shared, Unreadable: b.Unreadable}
	}
	g.RoundTrip50, g.RoundTrip99, g.ClockAhead = s.RTT50.Seconds(), s.RTT99.Seconds(), s.ClockAhead.Seconds()
	return g
}
