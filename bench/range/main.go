//go:build linux

// Range plays attacks against a real WordPress, with people at work on it, and measures what each kind
// of protection lets through and whom it harms.
//
//	go run ./range -quick     # in bench/; see range/README.md
//
// Everything runs in namespaces of its own: no system service, no port, no firewall rule and no file of
// the machine changes, and nothing is left when the command ends, by whatever signal.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// An options value holds the flags.
type options struct {
	only   string
	quick  bool
	short  bool
	length time.Duration
	seed   uint64
	policy string
	before string
	json   bool
	logs   string
}

func flags(args []string) (options, error) {
	var o options
	set := flag.NewFlagSet("range", flag.ContinueOnError)
	set.StringVar(&o.only, "only", "", "attacks and peers, by parts of their names, such as hydra,swarm,fairshare")
	set.BoolVar(&o.quick, "quick", false, "short attacks of our own programs, before fairshare only")
	set.BoolVar(&o.short, "short", false, "short attacks, in some 20 minutes: all of them before fairshare, some before each other peer")
	set.DurationVar(&o.length, "length", 0, "length of each attack; 0: one minute, 15 s with -quick, 12 s with -short")
	set.Uint64Var(&o.seed, "seed", 1, "chooses addresses, times and pages; the same seed repeats the same load")
	set.StringVar(&o.policy, "policy", "", "policy file of fairshare; empty: the built-in policy")
	set.StringVar(&o.before, "before", "", "another fairshare program, such as the one before a change: a further peer, with its built-in policy")
	set.BoolVar(&o.json, "json", false, "print one JSON object per run, and no table")
	set.StringVar(&o.logs, "logs", "", "folder for the logs of all programs")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see range -h", set.Arg(0))
	}
	if o.short && (o.quick || o.only != "") {
		return o, errors.New("-short chooses attacks and peers; use it without -quick and -only")
	}
	if o.length < 0 {
		return o, errors.New("-length must not be negative")
	}
	if o.length == 0 {
		o.length = time.Minute
		if o.quick {
			o.length = 15 * time.Second
		}
		if o.short {
			o.length = 12 * time.Second
		}
	}
	for _, path := range []*string{&o.policy, &o.before, &o.logs} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return o, err
		}
		*path = abs
	}
	return o, nil
}

// quiet returns how long people work before and after an attack.
func (o options) quiet() (before, after time.Duration) {
	switch {
	case o.quick:
		return 8 * time.Second, 6 * time.Second
	case o.short:
		return 4 * time.Second, 2 * time.Second
	}
	return 20 * time.Second, 20 * time.Second
}

func main() {
	log.SetFlags(log.Ltime)
	o, err := flags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if dir := os.Getenv(insideKey); dir != "" {
		err = inside(ctx, o, dir)
	} else {
		err = outside(ctx, o)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// inside does the work, in namespaces of its own. Files below dir are in memory.
func inside(ctx context.Context, o options, dir string) error {
	if err := furnish(dir); err != nil {
		return err
	}
	attacks, peers, err := choose(o)
	if err != nil {
		return err
	}
	runs := 0
	for _, a := range attacks {
		for _, p := range peers {
			if o.plays(a, p) {
				runs++
			}
		}
	}
	log.Printf("%d attacks, %d peers, %d runs; some %v", len(attacks), len(peers), runs, estimate(o, runs))
	s, err := newSite(ctx, dir)
	if o.logs != "" {
		defer copyLogs(dir, o.logs)
	}
	if err != nil {
		return err
	}
	defer s.stop()
	var results []result
	for _, a := range attacks {
		for _, p := range peers {
			if !o.plays(a, p) {
				continue
			}
			r, err := play(ctx, o, s, a, p)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				log.Printf("%s before %s: %v", a.name, p.name, err)
				r = result{Attack: a.name, Peer: p.name, Error: err.Error()}
			}
			results = append(results, r)
			if o.json {
				if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
					return err
				}
			} else {
				log.Print(r)
			}
		}
	}
	if !o.json {
		fmt.Print(table(results), o.limits())
	}
	return ctx.Err()
}

// plays reports whether an attack is played before a peer.
func (o options) plays(a attack, p peer) bool { return !o.short || p.quick || a.short }

// limits says what the tables of a reduced run do not show.
func (o options) limits() string {
	if !o.quick && !o.short {
		return ""
	}
	return fmt.Sprintf("\nThis was a reduced run: attacks of %v, with people at work for %v before. It shows which requests "+
		"are stopped. It does not show what comes later, such as the end of bans, and its times are of few pages. "+
		"Empty cells were not played. Measure with `go run ./range` on a quiet machine.\n", o.length,
		func() time.Duration { before, _ := o.quiet(); return before }())
}

// estimate returns how long that many runs take; each needs some seconds to start and end.
func estimate(o options, runs int) time.Duration {
	before, after := o.quiet()
	return (time.Duration(runs)*(before+o.length+after+8*time.Second) + 30*time.Second).Round(time.Minute)
}

// choose returns the attacks and peers of a run. Each word of -only is a name, or a part of names, of
// attacks or peers.
func choose(o options) ([]attack, []peer, error) {
	attacks, peers := allAttacks(), allPeers(o)
	if o.quick {
		attacks = filter(attacks, func(a attack) bool { return a.quick })
		peers = filter(peers, func(p peer) bool { return p.quick })
	}
	var wantedAttacks, wantedPeers []string
	for word := range strings.SplitSeq(o.only, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		foundAttacks := named(allAttacks(), word, func(a attack) string { return a.name })
		foundPeers := named(allPeers(o), word, func(p peer) string { return p.name })
		wantedAttacks, wantedPeers = append(wantedAttacks, foundAttacks...), append(wantedPeers, foundPeers...)
		if len(foundAttacks)+len(foundPeers) == 0 {
			return nil, nil, fmt.Errorf("-only: no attack and no peer is named %q; see range/README.md", word)
		}
	}
	if len(wantedAttacks) > 0 {
		attacks = filter(allAttacks(), func(a attack) bool { return slices.Contains(wantedAttacks, a.name) })
	}
	if len(wantedPeers) > 0 {
		peers = filter(allPeers(o), func(p peer) bool { return slices.Contains(wantedPeers, p.name) })
	}
	return attacks, peers, nil
}

// named returns the name that is the word, or else the names that contain it.
func named[T any](all []T, word string, name func(T) string) []string {
	var found []string
	for _, v := range all {
		if name(v) == word {
			return []string{word}
		}
		if strings.Contains(name(v), word) {
			found = append(found, name(v))
		}
	}
	return found
}

func filter[T any](all []T, wanted func(T) bool) []T {
	var found []T
	for _, v := range all {
		if wanted(v) {
			found = append(found, v)
		}
	}
	return found
}
