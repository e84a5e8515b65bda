package fleets

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// A model finds fleets by user agent in the slow and obvious way: it remembers each visit, and counts
// exactly. It does not know of owners and headers, and of the end of fleets.
type model struct {
	visits           []*modelVisit
	judged, periods  []int     // times of the judgments and of new periods, in seconds
	clients, fetched []float64 // of each period
}

type modelVisit struct {
	at    int // in seconds
	agent string
	addr  netip.Addr
	asset bool // the client asked for an asset
}

// settled returns the counts of each user agent in the present and the previous period. Visits that were
// not judged three times count as assets only.
func (m *model) settled() (n, k map[string]float64, networks map[string]map[netip.Prefix]bool) {
	n, k, networks = map[string]float64{}, map[string]float64{}, map[string]map[netip.Prefix]bool{}
	from, fresh := 0, 0
	if p := len(m.periods); p >= 2 {
		from = m.periods[p-2]
	}
	if j := len(m.judged); j >= freshTicks {
		fresh = m.judged[j-freshTicks]
	}
	for _, v := range m.visits {
		if v.at < from {
			continue
		}
		if networks[v.agent] == nil {
			networks[v.agent] = map[netip.Prefix]bool{}
		}
		networks[v.agent][network.Of(v.addr)] = true
		if v.at < fresh {
			n[v.agent]++
		}
		if v.asset {
			k[v.agent]++
		}
	}
	for agent := range k {
		k[agent] = min(k[agent], n[agent])
	}
	return n, k, networks
}

// usual returns p for one user agent, as judge.go describes it.
func (m *model) usual(n, k map[string]float64, but string) (p float64, known bool) {
	all, pairs, fellows := 0.0, 0.0, 0.0
	for agent := range n {
		if agent == but {
			continue
		}
		all += k[agent]
		if n[agent] > 1 {
			pairs += k[agent]
			fellows += k[agent] * (k[agent] - 1) / (n[agent] - 1)
		}
	}
	if all >= fewestBrowsers && pairs > 0 {
		p = fellows / pairs
	}
	clients, fetched := 0.0, 0.0
	for i := range max(len(m.clients)-2, 0) {
		clients, fetched = clients*habitFades+m.clients[i], fetched*habitFades+m.fetched[i]
	}
	if clients >= habitClients {
		if fetched/clients < habitLeast {
			return 0, false
		}
		p = max(p, fetched/clients)
	}
	return p, p >= leastShare
}

// judge returns by how much each user agent exceeds the certainty that a fleet needs: at least 1 is a
// fleet. networkFactor changes the number of networks.
func (m *model) judge(networkFactor float64) map[string]float64 {
	n, k, networks := m.settled()
	excess := map[string]float64{}
	for agent := range n {
		p, known := m.usual(n, k, agent)
		if !known || n[agent] < fewestClients || k[agent]/n[agent] > p/foundBelow {
			continue
		}
		q, independent := k[agent]/n[agent], min(n[agent], networkFactor*networkError*float64(len(networks[agent])))
		bound := (1 - q) * math.Log((1-q)/(1-p/2))
		if q > 0 {
			bound += q * math.Log(q/(p/2))
		}
		excess[agent] = independent * bound / certainty
	}
	return excess
}

// A Finder finds what the model finds with a fifth fewer networks, and nothing that the model does not
// find with a quarter more: the Finder estimates the number of networks.
func TestFinderFindsWhatTheModelFinds(t *testing.T) {
	found, spared := 0, 0
	for seed := range uint64(24) {
		random := rand.New(rand.NewPCG(seed, 7))
		f := New(Options{})
		m := &model{judged: []int{0}, periods: []int{0}, clients: []float64{0}, fetched: []float64{0}}
		f.Changes(start)
		f.Arrived(&fairshare.Request{Time: start, Addr: anywhere(1), Method: "GET", Path: "/a.css"}) // time begins
		shares := []float64{0.9, 0.6, 0.3, 0.05}
		if seed%3 == 0 { // without a fleet
			shares = []float64{0.9, 0.7, 0.5, 0.3}
		}
		frequency := make([]float64, len(shares))
		for i := range frequency {
			frequency[i] = 0.02 + 0.3*random.Float64()
		}
		clients, got := int(seed)*100_000, false
		for second := 1; second < 40*60 && !got; second++ {
			now := start.Add(time.Duration(second) * time.Second)
			if second-m.judged[len(m.judged)-1] >= judgeEvery {
				fewer, more := m.judge(0.8), m.judge(1.25)
				all, _ := f.Changes(now)
				for _, fl := range all {
					if fl.UserAgent == "" {
						continue
					}
					if got = true; more[fl.UserAgent] < 1 {
						t.Errorf("seed %d, %d s: found with %.2f of the certainty: %+v",
							seed, second, more[fl.UserAgent], fl)
					}
				}
				for agent, excess := range fewer {
					if excess >= 1 && !got {
						t.Errorf("seed %d, %d s: %q has %.2f of the certainty and was not found", seed, second, agent, excess)
						got = true
					}
				}
				m.turn(second)
			}
			for i, share := range shares {
				if random.Float64() > frequency[i] {
					continue
				}
				clients++
				v := &modelVisit{at: second, agent: fmt.Sprintf("Mozilla/5.0 (X%d) Firefox/133.0", i),
					addr: anywhere(clients), asset: random.Float64() < share}
				m.add(v)
				send := func(path, kind string) {
					f.Arrived(&fairshare.Request{Time: now, Addr: v.addr, Method: "GET", Path: path,
						UserAgent: v.agent})
					f.Answered(&Answer{Addr: v.addr, Method: "GET", Path: path, Status: 200, Type: kind}, now)
				}
				if send(fmt.Sprintf("/%d", clients), "text/html"); v.asset {
					send("/a.css", "text/css")
				}
			}
		}
		if got {
			found++
		} else {
			spared++
		}
	}
	t.Logf("%d runs with a fleet, %d without", found, spared)
	if found < 12 || spared < 8 {
		t.Errorf("%d of 24 runs had a fleet, want at least 12 and at most 16", found)
	}
}

func (m *model) add(v *modelVisit) {
	m.visits = append(m.visits, v)
	last := len(m.clients) - 1
	if m.clients[last]++; v.asset {
		m.fetched[last]++
	}
}

// turn ends a judgment, and a period if that is due.
func (m *model) turn(second int) {
	m.judged = append(m.judged, second)
	if second-m.periods[len(m.periods)-1] >= periodLength {
		m.periods = append(m.periods, second)
		m.clients, m.fetched = append(m.clients, 0), append(m.fetched, 0)
	}
}

// A Finder that looks at all its slots finds and counts the same as one that looks at those with counts.
func TestFinderSkipsOnlySlotsWithoutCounts(t *testing.T) {
	members := 0
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 11))
		f := New(Options{})
		all := &Finder{client: f.client, seed: f.seed}
		now, owners := start, uint32(1+seed%3)
		for step := range 30_000 {
			client, agent := random.IntN(600), "Mozilla/5.0 (X) Firefox/133.0" // which never fetches assets
			if client%4 > 0 {
				agent = fmt.Sprintf("Mozilla/5.0 (X%d) Firefox/133.0", client%8+random.IntN(1+step/10)*random.IntN(2))
			}
			req := fairshare.Request{Time: now, Addr: anywhere(client), Method: "GET",
				Path: fmt.Sprintf("/%d", random.IntN(9)), UserAgent: agent,
				Owner: fairshare.Owner{ASN: random.Uint32N(owners)}}
			if client%4 > 0 && random.IntN(2) == 0 {
				req.Path = "/a.css"
			}
			answer := Answer{Addr: req.Addr, Method: "GET", Path: req.Path, Status: 200}
			for i := range all.touched[0] {
				all.touched[0][i] = 1<<64 - 1
			}
			got, want := req, req
			f.Arrived(&got)
			all.Arrived(&want)
			if got.Fleet != want.Fleet || got.FleetNew != want.FleetNew {
				t.Fatalf("seed %d, step %d: fleet %q, want %q", seed, step, got.Fleet, want.Fleet)
			}
			if got.Fleet != "" {
				members++
			}
			f.Answered(&answer, now)
			all.Answered(&answer, now)
			switch n := random.IntN(1000); {
			case n < 900:
				now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond)
			case n < 995:
				now = now.Add(time.Duration(random.IntN(9)) * time.Second)
			case n == 999:
				now = now.Add(time.Duration(random.IntN(3000)) * time.Second)
			}
		}
		if !reflect.DeepEqual(f.Fleets(now), all.Fleets(now)) || !reflect.DeepEqual(f.heads, all.heads) ||
			!reflect.DeepEqual(f.slots, all.slots) || f.habit != all.habit {
			t.Errorf("seed %d: the counts differ", seed)
		}
	}
	if members == 0 {
		t.Error("no run had a fleet")
	}
}

// A wide fleet without requests ends, also if the first judgment after that finds another fleet, and a new period
// begins with it.
func TestFleetEndsAfterAJudgmentThatFindsAnother(t *testing.T) {
	f := New(Options{})
	all := &Finder{client: f.client, seed: f.seed} // looks at all slots
	for _, finder := range []*Finder{f, all} {
		random := rand.New(rand.NewPCG(5, 6))
		now := finder.clock(start)
		fill := func(i int, v view, clients, assets uint32) {
			finder.heads[i] = head{hash: 1, weight: clients, generation: 1, view: v}
			p := &finder.slots[i].periods[0]
			p.clients, p.assets = clients, assets
			for range clients {
				p.networks.add(random.Uint64())
			}
		}
		fill(3, byOwner, 2000, 0)
		finder.touched[1].add(3) // all of its requests came in the period before
		finder.begin(&finder.heads[3], &finder.slots[3], 0.9, now)
		fill(7, byAgent, 2000, 0)
		fill(9, byAgent, 2000, 1800)
		finder.touched[0].add(7)
		finder.touched[0].add(9)
	}
	for round, at := range []uint32{periodLength + 60, periodLength + 60 + judgeEvery} {
		for i := range all.touched[0] {
			all.touched[0][i] = 1<<64 - 1
		}
		f.judge(at)
		all.judge(at)
		if !f.heads[7].fleet || f.heads[3].fleet != (round == 0) {
			t.Errorf("judgment %d: narrow fleet %v, wide fleet %v", round, f.heads[7].fleet, f.heads[3].fleet)
		}
		if !reflect.DeepEqual(f.heads, all.heads) || len(f.fleets) != len(all.fleets) {
			t.Errorf("judgment %d: the fleets differ", round)
		}
	}
}
