package policyfile

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The reference describes all keys. Its examples are policies without warnings,
// except a few expected ones.
func TestReferenceIsCompleteAndItsExamplesParse(t *testing.T) {
	inOneGoroutine(t)
	data, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatchIndex(doc, -1)
	if len(examples) < 5 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, at := range examples {
		first := strings.Count(doc[:at[2]], "\n")
		// As many empty lines before it make the line numbers those of the page.
		f, err := Options{Bots: someBots, Cores: 4}.Parse("policy.md",
			[]byte(strings.Repeat("\n", first)+doc[at[2]:at[3]]))
		for _, fault := range Faults(err) {
			t.Error(fault.Text())
		}
		if f == nil {
			continue
		}
		for i := range f.Warnings {
			if w := f.Warnings[i].Text; !strings.Contains(w, "catches /robots.txt") {
				t.Error(f.Warnings[i].Long())
			}
		}
	}
	for what, keys := range map[string][]string{
		"the file": names(topKeys()), "clients": names(clientKeys()), "a rule": names(ruleKeys()),
		"use": names(useKeys()), "answers": names(answersKeys()),
		"match": names(matchKeys()),
		"limit": names(limitKeys()), "a list": names(listKeys()), "bots": names(botsKeys()),
		"an agent of bots": names(botAgentKeys()), "dns": names(dnsKeys()),
		"a DNS list": names(dnsListKeys()), "sessions": names(sessionKeys()), "registry": names(registryKeys()),
		"store":    names(storeKeys()),
		"listed":   names(listingKeys()),
		"upstream": names(upstreamKeys()), "the upstream's cpu": names(upstreamCPUKeys()),
		"the upstream's cost": names(upstreamCostKeys()), "share": names(shareKeys()), "weights": names(weightKeys()),
		"journal": names(journalKeys()), "access_log": names(accessLogKeys()),
		"opentelemetry": names(openTelemetryKeys()),
		"bounds":        names(boundsKeys()), "ban": names(banKeys()),
		"waiting_room": names(roomKeys()), "texts of waiting_room": names(textKeys()),
		"answer": names(answerKeys()), "visitors": names(visitorKeys()), "member": names(memberKeys()),
		"bans": names(bansKeys()), "export": names(exportKeys()), "nftables": names(nftablesKeys()),
		"a site": names(siteKeys()), "the upstream of a site": names(siteUpstreamKeys()), "health": names(healthKeys()),
		"a test": names(testKeys()), "expect": names(expectationKeys()),
		"nginx": names(nginxKeys()), "haproxy": names(haproxyKeys()), "command": names(commandKeys()),
	} {
		for _, key := range keys {
			if !strings.Contains(doc, "`"+key+"`") && !strings.Contains(doc, "`"+key+": ") &&
				!strings.Contains(doc, "`{"+key+": ") {
				t.Errorf("%s: the key %s is not in the reference", what, key)
			}
		}
	}
}

// The lines of the journal on the page for operators are JSON, and the page
// describes each of their fields.
func TestOperatorsPageDescribesJournalFields(t *testing.T) {
	data, err := os.ReadFile("../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	_, lines, _ := strings.Cut(doc, "```json\n")
	lines, text, _ := strings.Cut(lines, "```")
	n := 0
	for line := range strings.Lines(lines) {
		n++
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		for name := range fields {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("the page does not describe %s", name)
			}
		}
	}
	if n < 3 {
		t.Errorf("%d lines", n)
	}
	for _, keys := range [][]string{names(boundsKeys()), names(journalKeys()),
		{"hosts", "underscores", "keep_headers", "abandon", "grace", "h2c",
			"fast_lane"}} {
		for _, key := range keys {
			if !strings.Contains(doc, key) {
				t.Errorf("the page does not name %s", key)
			}
		}
	}
}
