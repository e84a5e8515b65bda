// Command gen makes the snapshot of published address ranges that is part of package bots,
// and the list of its sets.
//
//	go run ./ranges/gen -from FOLDER -o ranges
//
// FOLDER has the lists under the paths of their repositories: crawlers/*.txt of
// sefinek/known-bots-ip-whitelist, published-json/*.json of
// jonhadfield/cloud-ips, ranges/*_merged.txt of lord-alfred/ipranges, and
// asn/asn-ipv4.csv.gz of @ip-location-db/asn. Those of a newer day need newer
// dates and commits in sources below.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/gaissmai/bart"
)

// A source is a repository from which sets were taken.
type source struct{ name, at, date, licence string }

var (
	sefinek    = source{"sefinek/known-bots-ip-whitelist", "dd20350c6d24", "2026-05-05", "MIT"}
	cloudIPs   = source{"jonhadfield/cloud-ips", "a9fd42a4d49b", "2026-08-22", "Apache-2.0"}
	lordAlfred = source{"lord-alfred/ipranges", "14dd971b1875", "2026-08-22", "CC0-1.0"}
	asn        = source{"@ip-location-db/asn (RouteViews, DB-IP)", "2.3.2026061719", "2026-06-17", "CC-BY-4.0"}
	own        = source{"our own, see below", "", "2026-11-20", "as the program"}
)

// A set is one section of the snapshot: lists of one kind, merged. Where there
// are several sources, the first is named.
type set struct {
	name   string
	source source
	read   []func(from string) []string
}

var sets = []set{
	// Addresses of crawlers.
	{"googlebot", cloudIPs, of(published("googlebot"))},
	{"google-special", cloudIPs, of(published("googlesc"))},
	{"google-user-triggered", cloudIPs, of(published("googleutf"), crawler("google-user-triggered-fetchers"))},
	{"bingbot", lordAlfred, of(merged("bing"))},
	{"applebot", sefinek, of(crawler("applebot"))},
	{"duckduckbot", lordAlfred, of(merged("duckduckbot"))},
	{"duckassistbot", lordAlfred, of(merged("duckassistbot"))},
	{"yandexbot", sefinek, of(crawler("yandexbot"))},
	{"facebookbot", sefinek, of(crawler("facebookbot"))},
	{"gptbot", sefinek, of(crawler("gptbot"))},
	{"oai-searchbot", sefinek, of(crawler("oai-searchbot"))},
	{"chatgpt-user", sefinek, of(crawler("chatgpt-user"))},
	{"claudebot", sefinek, of(crawler("claudebot"))},
	{"perplexitybot", sefinek, of(crawler("perplexitybot"))},
	{"perplexity-user", sefinek, of(crawler("perplexity-user"))},
	{"ahrefsbot", sefinek, of(crawler("ahrefsbot"))},
	{"semrush", sefinek, of(crawler("semrush"))},
	{"telegrambot", lordAlfred, of(merged("telegram"))},
	{"twitterbot", lordAlfred, of(merged("twitter"))},
	{"uptimerobot", sefinek, of(crawler("uptimerobot"))},
	{"pingdom", lordAlfred, of(merged("pingdom"))},
	{"statuscake", lordAlfred, of(merged("statuscake"))},
	{"webpagetest", sefinek, of(crawler("webpagetestbot"))},
	{"shodan", sefinek, of(crawler("shodan"))},
	{"censys", sefinek, of(crawler("censys"))},

	// Wider networks, from which crawlers may also come.
	{"google", lordAlfred, of(merged("google"), lines("203.208.32.0/19"))},
	{"microsoft", lordAlfred, of(merged("microsoft"))},
	{"amazon", lordAlfred, of(merged("amazon"))},
	{"facebook", lordAlfred, of(merged("facebook"))},
	{"apple", own, of(lines("17.0.0.0/8"))},
	{"yandex", sefinek, of(crawler("yandexbot"), lines("100.43.64.0/19", "199.21.96.0/22"))},
	{"ovh", asn, of(network("16276"))},
	{"former", own, of(lines("5.10.83.0/25", "46.229.160.0/20", "72.94.249.32/29"))},
}

type reader = func(from string) []string

func of(readers ...reader) []reader { return readers }

func main() {
	log.SetFlags(0)
	from := flag.String("from", "", "folder of the lists")
	out := flag.String("o", ".", "folder of the snapshot")
	flag.Parse()
	if *from == "" {
		log.Fatal("-from FOLDER is needed")
	}
	var snapshot, list bytes.Buffer
	for _, s := range sets {
		var table bart.Lite
		var spans []string
		for _, read := range s.read {
			for _, text := range read(*from) {
				if p, err := netip.ParsePrefix(text); err == nil {
					table.Insert(p.Masked())
				} else if addr, err := netip.ParseAddr(text); err == nil {
					table.Insert(netip.PrefixFrom(addr, addr.BitLen()))
				} else {
					spans = append(spans, text) // checked when the snapshot is read
				}
			}
		}
		table.Aggregate()
		fmt.Fprintf(&snapshot, "[%s] %s %s\n", s.name, s.source.date, s.source.name)
		for p := range table.AllSorted() {
			fmt.Fprintln(&snapshot, strings.TrimSuffix(strings.TrimSuffix(p.String(), "/32"), "/128"))
		}
		for _, span := range spans {
			fmt.Fprintln(&snapshot, span)
		}
		from := s.source.name
		if s.source.at != "" {
			from += " at `" + s.source.at + "`"
		}
		fmt.Fprintf(&list, "| %s | %d | %s | %s | %s |\n", s.name, table.Size()+len(spans), s.source.date, from,
			s.source.licence)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	check(err)
	_, err = w.Write(snapshot.Bytes())
	check(err)
	check(w.Close())
	check(os.WriteFile(filepath.Join(*out, "snapshot.gz"), packed.Bytes(), 0o644))

	const mark = "<!-- made by gen -->\n"
	readme := filepath.Join(*out, "README.md")
	text, err := os.ReadFile(readme)
	check(err)
	parts := strings.Split(string(text), mark)
	if len(parts) != 3 {
		log.Fatalf("%s: its list has to stand between two lines %s", readme, mark)
	}
	head := "| set | prefixes | as of | from | licence |\n|---|---:|---|---|---|\n"
	check(os.WriteFile(readme, []byte(parts[0]+mark+head+list.String()+mark+parts[2]), 0o644))
	log.Printf("%d sets, %d bytes, %d packed", len(sets), snapshot.Len(), packed.Len())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// lines are written in this file.
func lines(texts ...string) reader { return func(string) []string { return texts } }

// crawler reads a list of sefinek/known-bots-ip-whitelist.
func crawler(name string) reader {
	return func(from string) []string { return textFile(filepath.Join(from, "crawlers", name+".txt"), true) }
}

// merged reads a list of lord-alfred/ipranges: IPv4, IPv6 or both.
func merged(name string) reader {
	return func(from string) []string {
		file := filepath.Join(from, "ranges", name)
		return append(textFile(file+"-ipv4_merged.txt", true), textFile(file+"-ipv6_merged.txt", false)...)
	}
}

func textFile(file string, must bool) (texts []string) {
	data, err := os.ReadFile(file)
	if !must && os.IsNotExist(err) {
		return nil
	}
	check(err)
	for line := range strings.Lines(string(data)) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			texts = append(texts, strings.TrimSpace(line))
		}
	}
	return texts
}

// published reads a file in the format of Google.
func published(name string) reader {
	return func(from string) (texts []string) {
		data, err := os.ReadFile(filepath.Join(from, "published-json", name+".json"))
		check(err)
		var file struct {
			Prefixes []struct{ IPv4Prefix, IPv6Prefix string }
		}
		check(json.Unmarshal(data, &file))
		for _, p := range file.Prefixes {
			texts = append(texts, p.IPv4Prefix+p.IPv6Prefix)
		}
		return texts
	}
}

// network reads the ranges of one network number (IPv4).
func network(number string) reader {
	return func(from string) (texts []string) {
		f, err := os.Open(filepath.Join(from, "asn", "asn-ipv4.csv.gz"))
		check(err)
		defer f.Close()
		unpacked, err := gzip.NewReader(bufio.NewReader(f))
		check(err)
		rows := csv.NewReader(unpacked)
		for {
			row, err := rows.Read()
			if err == io.EOF {
				return texts
			}
			check(err)
			if row[2] == number {
				texts = append(texts, row[0]+"-"+row[1])
			}
		}
	}
}
