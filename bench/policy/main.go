// Command policy measures the effect of a policy on the clients of access logs.
// Visitors, crawlers and machines should pass; scanners, guessers, spammers and forgers
// should be stopped. The command runs `fairshare replay --verdicts` for each log and
// labels each client by all of its requests. For each log and label it prints the number
// of requests, the part that was stopped, and the number of clients with stopped
// requests.
//
//	go run ./policy [-c POLICY] [-labels FILE] [-show LABEL] LOG…
//
// The labels come from heuristics (label.go). A file can correct them: each line contains
// LOG-NAME, CLIENT and LABEL, separated by tabs. The client "*" stands for all clients of
// that log without their own line.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fairshare"
	"fairshare/bots"
	"fairshare/internal/accesslog"
)

func main() {
	log.SetFlags(0)
	policy := flag.String("c", "", "policy file; without it, the built-in policy")
	known := flag.String("labels", filepath.Join("policy", "labels.tsv"), "file of known labels")
	show := flag.String("show", "",
		"list the clients of this label that were stopped, or that were not if they should be")
	program := flag.String("fairshare", "", "the program; without it, it is built from the folder above")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "fairshare-policy")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if *program == "" {
		*program = filepath.Join(dir, "fairshare")
		build := exec.Command("go", "build", "-C", "..", "-o", *program, "./cmd/fairshare")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			log.Fatal(err)
		}
	}
	told, err := readLabels(*known)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print("| log |")
	for _, l := range labels {
		if l == unclear {
			fmt.Print(" unclear |")
		} else {
			fmt.Printf(" %ss |", l)
		}
	}
	fmt.Println("\n|---|" + strings.Repeat("---:|", len(labels)))
	verifier := bots.NewVerifier(bots.Options{})
	var all, late totals
	posed, caught := 0, 0 // requests under the name of a search engine
	for _, path := range flag.Args() {
		clients, logged, err := measure(verifier, *program, *policy, path, filepath.Join(dir, "verdicts.tsv"))
		if err != nil {
			log.Fatalf("%s: %v", path, err)
		}
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		var sums totals
		for addr, c := range clients {
			l, ok := told[[2]string{name, addr}]
			if !ok {
				if l, ok = told[[2]string{name, "*"}]; !ok {
					l = c.label(logged)
				}
			}
			sums.add(l, c.requests, c.stopped)
			all.add(l, c.requests, c.stopped)
			if c.requests > first {
				late.add(l, c.requests-first, c.lateStopped)
			}
			posed, caught = posed+c.forged, caught+c.forgedStopped
			if *show == string(l) && (l.bad() && c.stopped < c.requests*95/100 || !l.bad() && c.stopped > 0) {
				fmt.Printf(
					"%s\t%s\t%d of %d stopped\t%v\tpages %d assets %d referers %d posts %d lost %d probes %d logins %d−%d writes %d paths %d sittings %d\t%.80s\n", name, addr, c.stopped, c.requests,
					c.rules, c.pages, c.assets, c.referers, c.posts, c.lost, c.probes, c.logins, c.entered, c.writes,
					len(c.paths), c.sittings, c.agent)
			}
		}
		sums.print(name)
	}
	all.print("all")
	late.print(fmt.Sprintf("all, after the first %d requests of each client", first))
	fmt.Printf("\nForged names of search engines: %d requests, %d stopped\n", posed, caught)
}

// first is how many requests of a client show what it is.
const first = 10

// totals are the sums of each label.
type totals map[label]*struct{ clients, hurt, requests, stopped int }

func (t *totals) add(l label, requests, stopped int) {
	if *t == nil {
		*t = totals{}
	}
	if (*t)[l] == nil {
		(*t)[l] = &struct{ clients, hurt, requests, stopped int }{}
	}
	s := (*t)[l]
	s.clients++
	s.requests += requests
	s.stopped += stopped
	if stopped > 0 {
		s.hurt++
	}
}

// print writes a row: for each label the number of requests, the part that was stopped,
// and the number of clients with stopped requests.
func (t totals) print(name string) {
	fmt.Printf("| %s |", name)
	for _, l := range labels {
		if s := t[l]; s == nil {
			fmt.Print(" |")
		} else if s.stopped == 0 {
			fmt.Printf(" %d: 0 |", s.requests)
		} else {
			fmt.Printf(" %d: %s, %d of %d |", s.requests, percent(s.stopped, s.requests), s.hurt, s.clients)
		}
	}
	fmt.Println()
}

func percent(part, whole int) string {
	switch p := 100 * float64(part) / float64(whole); {
	case p < 0.1:
		return fmt.Sprintf("%.4f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}

// forged reports whether a client pretends to be a crawler of a search engine, but its
// address is not among the published ones.
func forged(verifier *bots.Verifier, client, userAgent string) bool {
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return false
	}
	bot := verifier.Look(addr, userAgent)
	return bot.State == fairshare.Forged && slices.Contains(bot.Categories, "search")
}

// measure replays one log and returns its clients.
func measure(verifier *bots.Verifier, program, policy, path, verdicts string) (map[string]*client, accesslog.Fields,
	error) {
	args := []string{"replay", "--verdicts", verdicts, "--json", path}
	if policy != "" {
		args = slices.Insert(args, 1, "-c", policy)
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("%w\n%s", err, out)
	}
	judged, err := os.Open(verdicts)
	if err != nil {
		return nil, 0, err
	}
	defer judged.Close()
	lines := bufio.NewScanner(judged)
	lines.Scan() // the heading
	file, err := accesslog.Open(path, accesslog.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	clients := map[string]*client{}
	for {
		batch, err := file.Next()
		if errors.Is(err, io.EOF) {
			return clients, file.Has(), lines.Err()
		}
		if err != nil {
			return nil, 0, err
		}
		for i := range batch.Entries {
			e := &batch.Entries[i]
			if !lines.Scan() {
				return nil, 0, errors.New("fewer verdicts than lines")
			}
			cells := strings.Split(lines.Text(), "\t")
			if n, err := strconv.ParseInt(cells[0], 10, 64); err != nil || n != e.Line || len(cells) < 5 {
				return nil, 0, fmt.Errorf("line %d: verdict %q", e.Line, lines.Text())
			}
			c := clients[cells[2]]
			if c == nil {
				c = &client{paths: map[string]bool{}, agents: map[string]bool{}, rules: map[string]int{}}
				clients[strings.Clone(cells[2])] = c
			}
			e.Target, e.UserAgent = strings.Clone(e.Target), strings.Clone(e.UserAgent)
			poses := forged(verifier, cells[2], e.UserAgent)
			c.add(e, poses)
			if cells[3] != "allow" {
				c.stopped++
				if poses {
					c.forgedStopped++
				}
				if c.requests > first {
					c.lateStopped++
				}
				c.rules[cells[4]]++
			}
		}
		batch.Release()
	}
}

// readLabels reads known labels, by log and client.
func readLabels(path string) (map[[2]string]label, error) {
	told := map[[2]string]label{}
	if path == "" {
		return told, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		cells := strings.Split(line, "\t")
		if len(cells) < 3 || !slices.Contains(labels, label(cells[2])) {
			return nil, fmt.Errorf("%s: %q: want a log, a client and one of %v", path, line, labels)
		}
		told[[2]string{cells[0], cells[1]}] = label(cells[2])
	}
	return told, nil
}
