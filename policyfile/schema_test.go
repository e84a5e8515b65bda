package policyfile

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An object is the part of the schema for one map of the file.
type object struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]object          `json:"$defs"`
	Additional any                        `json:"additionalProperties"`
	AnyOf      json.RawMessage            `json:"anyOf"`
}

func TestSchemaKnowsTheKeysOfTheParser(t *testing.T) {
	var schema object
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	var clients, upstream, tls, journal, bounds, bots, dns, sessions, registry, owners, telemetry object
	for name, into := range map[string]*object{
		"clients": &clients, "tls": &tls, "journal": &journal, "bounds": &bounds, "bots": &bots, "dns": &dns,
		"sessions": &sessions, "registry": &registry, "asn": &owners, "opentelemetry": &telemetry,
	} {
		if err := json.Unmarshal(schema.Properties[name], into); err != nil {
			t.Fatal(err)
		}
	}
	var either struct{ AnyOf []object }
	if err := json.Unmarshal(schema.Properties["upstream"], &either); err != nil {
		t.Fatal(err)
	}
	upstream = either.AnyOf[1]
	var store struct{ AnyOf []object }
	if err := json.Unmarshal(schema.Properties["store"], &store); err != nil {
		t.Fatal(err)
	}
	var cost, weights object
	for raw, into := range map[*json.RawMessage]*object{new(upstream.Properties["cost"]): &cost,
		new(schema.Defs["share"].Properties["weights"]): &weights} {
		if err := json.Unmarshal(*raw, into); err != nil {
			t.Fatal(err)
		}
	}
	var listing []object
	if err := json.Unmarshal(schema.Defs["listing"].AnyOf, &listing); err != nil {
		t.Fatal(err)
	}
	var site struct{ AnyOf []object }
	if err := json.Unmarshal(schema.Defs["site"].AnyOf, &site.AnyOf); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		parser []string
		schema object
	}{
		{"the policy", names(topKeys()), schema},
		{"clients", names(clientKeys()), clients},
		{"upstream", names(upstreamKeys()), upstream},
		{"tls", names(tlsKeys()), tls},
		{"journal", names(journalKeys()), journal},
		{"bounds", names(boundsKeys()), bounds},
		{"opentelemetry", names(openTelemetryKeys()), telemetry},
		{"bots", names(botsKeys()), bots},
		{"an agent of bots", names(botAgentKeys()), schema.Defs["botagent"]},
		{"dns", names(dnsKeys()), dns},
		{"asn", names(asnKeys()), owners},
		{"a DNS list", names(dnsListKeys()), schema.Defs["dnslist"]},
		{"sessions", names(sessionKeys()), sessions},
		{"registry", names(registryKeys()), registry},
		{"store", names(storeKeys()), store.AnyOf[1]},
		{"a list", names(listKeys()), schema.Defs["source"]},
		{"listed", names(listingKeys()), listing[1]},
		{"rule", slices.Compact(slices.Sorted(slices.Values(append(names(ruleKeys()), names(useKeys())...)))),
			schema.Defs["rule"]},
		{"match", names(matchKeys()), schema.Defs["match"]},
		{"limit", names(limitKeys()), schema.Defs["limit"]},
		{"the upstream's cpu", names(upstreamCPUKeys()), schema.Defs["upstreamcpu"]},
		{"the upstream's cost", names(upstreamCostKeys()), cost},
		{"share", names(shareKeys()), schema.Defs["share"]},
		{"weights", names(weightKeys()), weights},
		{"visitors", names(visitorKeys()), schema.Defs["visitors"]},
		{"waiting_room", names(roomKeys()), schema.Defs["waitingroom"]},
		{"texts", names(textKeys()), schema.Defs["languagetexts"]},
		{"ban", names(banKeys()), schema.Defs["ban"]},
		{"bans", names(bansKeys()), schema.Defs["bans"]},
		{"export", names(exportKeys()), schema.Defs["banexport"]},
		{"nftables", names(nftablesKeys()), schema.Defs["nftables"]},
		{"nginx", names(nginxKeys()), schema.Defs["nginxbans"]},
		{"haproxy", names(haproxyKeys()), schema.Defs["haproxybans"]},
		{"command", names(commandKeys()), schema.Defs["bancommand"]},
		{"answer", names(answerKeys()), schema.Defs["answer"]},
		{"a site", names(siteKeys()), site.AnyOf[1]},
		{"the upstream of a site", names(siteUpstreamKeys()), schema.Defs["siteupstream"]},
		{"health", names(healthKeys()), schema.Defs["health"]},
		{"a test", names(testKeys()), schema.Defs["test"]},
	} {
		slices.Sort(c.parser)
		if diff := cmp.Diff(c.parser, slices.Sorted(maps.Keys(c.schema.Properties))); diff != "" {
			t.Errorf("keys of %s (-parser +schema):\n%s", c.name, diff)
		}
		if c.schema.Additional != false {
			t.Errorf("%s takes other keys", c.name)
		}
	}
}

// typed returns the value of a node by the rules of YAML's core schema.
func (n *node) typed() any {
	switch n.kind {
	case listNode:
		list := []any{}
		for _, item := range n.items {
			list = append(list, item.typed())
		}
		return list
	case mapNode:
		m := map[string]any{}
		for _, e := range n.entries {
			m[e.key.text] = e.value.typed()
		}
		return m
	case nullNode:
		return nil
	}
	if !n.quoted {
		switch n.text {
		case "true", "True", "TRUE":
			return true
		case "false", "False", "FALSE":
			return false
		}
		if plainDigits(strings.TrimLeft(n.text, "+-")) {
			return json.Number(n.text)
		}
		if _, err := strconv.ParseFloat(n.text, 64); err == nil && !strings.ContainsAny(n.text, "xXpP_nN") {
			return json.Number(n.text)
		}
	}
	return n.text
}

// unseen are the bad files whose faults a JSON schema cannot find: references by
// name, bounds of durations and sizes, regexps, bans by some keys.
var unseen = []string{"latin1", "default_twice", "documents", "ended", "listed_nowhere", "asn_nowhere", "files",
	"files_key", "access_log_same", "visitors_never", "when_busy_share_none", "fleet_bans",
	"acme", "acme_no_hosts", "listen_http", "listen_http_any"}

func TestSchemaAcceptsGoodFilesAndRejectsBadOnes(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range append(paths, "default.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{file: &File{}}
		root, fault := r.parseTree(strings.TrimPrefix(string(data), byteOrderMark))
		if fault != nil || root == nil {
			continue // no YAML, which an editor sees without a schema
		}
		err = schema.Validate(root.typed())
		bad := strings.Contains(path, "bad/") && !slices.Contains(unseen,
			strings.TrimSuffix(filepath.Base(path), ".yaml"))
		if bad && err == nil {
			t.Errorf("%s: the schema has nothing against it", path)
		}
		if !bad && err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
