//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fairshare/bench/internal/stand"
)

// A result is what one run has shown.
type result struct {
	Attack string `json:"attack"`
	Peer   string `json:"peer"`
	Error  string `json:"error,omitempty"`

	Seed   uint64  `json:"seed"`
	Length float64 `json:"length_s"`

	Sent     int64   `json:"sent"`     // requests of the attack that count, such as guesses
	Reached  int     `json:"reached"`  // those of them that PHP has processed
	Other    int     `json:"other"`    // further requests of the attack that PHP has processed
	Capacity float64 `json:"capacity"` // time of PHP's workers that the attack took, of all of it, 0 to 1
	CPU      float64 `json:"cpu_s"`    // CPU time of PHP for the attack

	People  int      `json:"people"`
	Harmed  []harm   `json:"harmed"`
	P50     [3]int   `json:"p50_ms"` // of people's pages before, during and after the attack
	P99     [3]int   `json:"p99_ms"`
	Pages   [3]int   `json:"pages"`
	Links   links    `json:"links"`             // of the link checker
	Stalled []string `json:"stalled,omitempty"` // what people could not do, without a refusal
	Notes   []string `json:"notes,omitempty"`   // about the attack
}

// A harm is what happened to one person.
type harm struct {
	Person   string `json:"person"`
	Requests [3]int `json:"requests"` // harmed before, during and after the attack
	First    string `json:"first"`
}

// play plays an attack before a peer.
func play(ctx context.Context, o options, s *site, a attack, p peer) (result, error) {
	r := result{Attack: a.name, Peer: p.name, Seed: o.seed, Length: o.length.Seconds()}
	dir := filepath.Join(filepath.Dir(s.dir), "runs", a.name+"-"+p.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return r, err
	}
	if err := s.reset(ctx); err != nil {
		return r, err
	}
	procs := &processes{dir: dir, site: s, options: o}
	defer clearFirewall()
	defer procs.stop()
	if err := p.start(ctx, procs); err != nil {
		return r, err
	}
	if err := s.warm(ctx); err != nil {
		return r, err
	}

	addrs := newAddresses(o.seed)
	people := &crowd{seed: o.seed, site: s, length: o.length, dir: dir}
	begun := make(chan struct{})
	working, goHome := context.WithCancel(ctx)
	defer goHome()
	group := people.start(working, addrs, begun)
	quietBefore, quietAfter := o.quiet()
	att := &attacker{attack: a, rng: random(o.seed, a.name), addrs: addrs.take(a.addrs), length: o.length, dir: dir}

	sleep(ctx, quietBefore)
	people.enter(during)
	close(begun)
	attacking, end := context.WithTimeout(ctx, o.length)
	var attackers sync.WaitGroup
	attackers.Go(func() { a.run(attacking, att) })
	<-attacking.Done()
	end()
	people.enter(after)
	sleep(ctx, quietAfter)
	goHome()
	group.Wait()
	attackers.Wait()
	if ctx.Err() != nil {
		return r, ctx.Err()
	}

	hits, _, err := s.hits(0)
	if err != nil {
		return r, err
	}
	r.Sent = att.sent.Load()
	r.Notes = att.notes
	r.measureAttack(a, att.addrs, hits, o.length)
	people.mu.Lock()
	defer people.mu.Unlock()
	r.measurePeople(people)
	if o.logs != "" {
		saveRecords(filepath.Join(dir, "people.log"), people.records)
		if text, err := os.ReadFile(s.reached()); err == nil {
			os.WriteFile(filepath.Join(dir, "reached.log"), text, 0o644)
		}
	}
	return r, nil
}

func (r *result) measureAttack(a attack, addrs []netip.Addr, hits []hit, length time.Duration) {
	ours := make(map[netip.Addr]bool)
	for _, addr := range addrs {
		ours[addr] = true
	}
	var took, cpu time.Duration
	for _, h := range hits {
		if !ours[h.from] {
			continue
		}
		took += h.took
		cpu += h.cpu
		if a.counts == nil || a.counts(h.method, h.target) {
			r.Reached++
		} else {
			r.Other++
		}
	}
	r.Capacity = min(1, took.Seconds()/(workers*length.Seconds()))
	r.CPU = cpu.Seconds()
}

func (r *result) measurePeople(c *crowd) {
	r.People = len(c.names)
	r.Stalled = c.stalled
	r.Links = c.links
	byName := make(map[string]*harm)
	var waits [3][]time.Duration
	for _, rec := range c.records {
		refused := strings.HasPrefix(rec.harm, "refused")
		if rec.page && !refused {
			waits[rec.phase] = append(waits[rec.phase], rec.wait)
		}
		if rec.harm == "" {
			continue
		}
		h := byName[rec.person]
		if h == nil {
			h = &harm{Person: rec.person, First: rec.target + ": " + rec.harm}
			byName[rec.person] = h
		}
		h.Requests[rec.phase]++
	}
	for _, name := range c.names {
		if h := byName[name]; h != nil {
			r.Harmed = append(r.Harmed, *h)
		}
	}
	for i, w := range waits {
		r.Pages[i] = len(w)
		r.P50[i], r.P99[i] = percentile(w, 50), percentile(w, 99)
	}
}

// percentile returns the nearest rank in ms; 0 for no times.
func percentile(times []time.Duration, p int) int {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := (len(sorted)*p + 99) / 100
	return int(sorted[max(rank, 1)-1].Milliseconds())
}

func saveRecords(path string, records []record) {
	var b strings.Builder
	for _, r := range records {
		wait := r.wait.Round(time.Millisecond)
		fmt.Fprintf(&b, "%d %s %s %d %v %s\n", r.phase, r.person, r.target, r.status, wait, r.harm)
	}
	os.WriteFile(path, []byte(b.String()), 0o644)
}

// clearFirewall removes what a peer left in the firewall of the namespace.
func clearFirewall() {
	if nft, err := stand.Find("nft"); err == nil {
		exec.Command(nft, "flush", "ruleset").Run()
	}
}
