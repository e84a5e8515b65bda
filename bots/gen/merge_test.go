package main

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func TestLiterals(t *testing.T) {
	for _, test := range []struct {
		expr string
		want []string // nil: it has no finite list of texts
	}{
		{`Googlebot\/`, []string{"<googlebot/"}},
		{`[wW]get`, []string{"^wget", "compatible; wget", "<<wget>>"}}, // a phone may have this name
		{`^curl`, []string{"^curl"}},
		{`(^| )PTST\/`, []string{"^ptst/", " ptst/"}},
		{`Ahrefs(Bot|SiteAudit)`, []string{"<ahrefsbot", "<ahrefssiteaudit"}},
		{`Face(book){0,1}[Bb]ot`, []string{"<facebot", "<facebookbot"}},
		{`AdsBot-Google([^-]|$)`, []string{"<adsbot-google", "<adsbot-google$"}},
		{`SSL Labs$`, []string{"<ssl labs$"}},
		{`Spider[\s\S]*spider\.com`, nil},
		{`BlogTraffic\/\d\.\d+ Feed`, nil},
	} {
		got, err := literals(test.expr)
		if (err == nil) != (test.want != nil) || !slices.Equal(got, test.want) {
			t.Errorf("literals(%q) = %q, %v, want %q", test.expr, got, err, test.want)
		}
	}
}

func TestMaskDomain(t *testing.T) {
	for mask, want := range map[string]string{
		"crawl-***-***-***-***.googlebot.com":         "googlebot.com",
		"geo-crawl-***-***-***-***.geo.googlebot.com": "geo.googlebot.com",
		"@.search.msn.com":                            "search.msn.com",
		"***-***-***-***.gae.googleusercontent.com":   "",
	} {
		if got := maskDomain(mask); got != want {
			t.Errorf("maskDomain(%q) = %q, want %q", mask, got, want)
		}
	}
}

func TestMerge(t *testing.T) {
	m := newMerger(additions{
		Bots: []ownBot{
			{bot: bot{Name: "examplebot", Categories: []string{"search"},
				Patterns: []string{"<examplebot", "<examplefetch"}}},
			{bot: bot{Name: "testers", Categories: []string{"monitor"},
				Patterns: []string{"<siteping/", "<speedping/"}}, AfterLists: true},
		},
		Replace: map[string][]string{"Odd.*bot": {"<oddbot"}},
		Names:   map[string]string{"thirdbot": "third"},
	})
	for _, e := range []entry{
		{patterns: []string{`ExampleBot\/2`}, categories: []string{"seo"}},       // ours already
		{patterns: []string{"Odd.*bot"}, categories: []string{"ai"}},             // with our text
		{patterns: []string{"OddBot"}, categories: []string{"search"}, url: "u"}, // another list, the same bot
		{patterns: []string{"OddBot-Images"}, categories: []string{"ai"}},        // a variant
		{patterns: []string{`ThirdBot\/`}, categories: []string{"other"}},
		{patterns: []string{`SitePing\/`}, categories: []string{"monitor"}},
		{patterns: []string{`LinkPreviewer\/`}, categories: []string{"preview"}},
	} {
		if err := m.merge(e); err != nil {
			t.Fatal(err)
		}
	}
	m.addGroups()
	if err := m.unused(); err != nil {
		t.Error(err)
	}
	got, err := json.Marshal(m.bots)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"examplebot","categories":["search"],"patterns":["\u003cexamplebot","\u003cexamplefetch"]},` +
		`{"name":"oddbot","categories":["ai","search"],"url":"u","patterns":["\u003coddbot"]},` +
		`{"name":"third","categories":["other"],"patterns":["\u003cthirdbot/"]},` +
		`{"name":"siteping","categories":["monitor"],"patterns":["\u003c\u003csiteping/"]},` +
		`{"name":"linkpreviewer","categories":["preview"],"steered":true,"patterns":["\u003clinkpreviewer/"]},` +
		`{"name":"testers","categories":["monitor"],"patterns":["\u003cspeedping/"]}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// After a change of the additions, the table must be generated again.
func TestTableHoldsTheAdditions(t *testing.T) {
	var add additions
	if err := readJSON("additions.json", &add); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../table.json")
	if err != nil {
		t.Fatal(err)
	}
	var table additions
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	in := map[string]bot{}
	for _, b := range table.Bots {
		in[b.Name] = b.bot
	}
	for _, b := range add.Bots {
		made, found := in[b.Name]
		if !found || !slices.Equal(made.Categories, b.Categories) || made.UserTriggered != b.UserTriggered ||
			!slices.Equal(made.Ranges, b.Ranges) {
			t.Errorf("%s: the table has %+v", b.Name, made)
		}
		for _, p := range b.Patterns {
			if !b.AfterLists && !slices.Contains(made.Patterns, p) {
				t.Errorf("%s: the table lacks the pattern %q", b.Name, p)
			}
		}
	}
	if !slices.Equal(table.People, add.People) || !slices.Equal(table.Harmless, add.Harmless) {
		t.Error("the signs of people or the harmless texts differ")
	}
}
