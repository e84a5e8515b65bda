package main

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
)

// categoryWords find a category in a list's description of a bot; the first match
// wins. Of crawler-user-agents only "seo" needs them: that list uses it for all
// bots without another category.
var categoryWords = []struct {
	category string
	words    []string
}{
	{"seo", []string{"seo", "backlink", "serp", "rank", "sitemap", "audit", "keyword", "link check", "link analysis",
		"search engine optim", "link building"}},
	{"ai", []string{"machine learning", "llm", " ai ", "artificial intelligence"}},
	{"monitor", []string{"uptime", "website monitoring", "performance monitor", "site health", "link health"}},
	{"scanner", []string{"security", "vulnerab", "malware", "phishing", "threat"}},
	{"advertising", []string{"advertis", "ad network", "ads.txt", "affiliate"}},
	{"preview", []string{"preview", "unfurl", "thumbnail"}},
	{"feed", []string{"rss", "feed", "podcast"}},
	{"archive", []string{"archiv"}},
	{"academic", []string{"academic", "university", "linguistic"}},
	{"fetcher", []string{"webhook", "automation platform", "payment", "e-commerce platform", "ecommerce platform",
		"pdf", "import"}},
}

func wordCategory(text string) string {
	text = strings.ToLower(text)
	for _, w := range categoryWords {
		if slices.ContainsFunc(w.words, func(s string) bool { return strings.Contains(text, s) }) {
			return w.category
		}
	}
	return "other"
}

func crawlerCategories(tags []string, text string) []string {
	names := map[string]string{
		"search-engine": "search", "ai-crawler": "ai", "monitoring": "monitor", "social-preview": "preview",
		"feed-reader": "feed", "archiver": "archive", "browser-automation": "headless", "http-library": "library",
		"scanner": "scanner", "advertising": "advertising", "academic": "academic",
	}
	var all []string
	for _, tag := range tags {
		c, known := names[tag]
		if !known {
			c = wordCategory(text)
		}
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return []string{"other"}
	}
	slices.SortStableFunc(all, func(a, b string) int {
		return cmp.Compare(boolInt(a == "other"),
			boolInt(b == "other"))
	})
	return all
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func knownCategories(list []string) []string {
	names := map[string]string{
		"ai": "ai", "search-engine": "search", "monitor": "monitor", "preview": "preview", "social": "preview",
		"feedfetcher": "feed", "tool": "tool", "academic": "academic", "advertising": "advertising",
		"optimizer": "seo", "archive": "archive", "webhook": "fetcher", "programmatic": "library",
	}
	var all []string
	for _, l := range list {
		if c := names[l]; c != "" && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return []string{"other"}
	}
	return all
}

// readRobots reads ai.robots.txt: names of bots and their purposes.
func readRobots(path string) ([]entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var entries []entry
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var facts struct{ Operator, Function string }
		if err := d.Decode(&facts); err != nil {
			return nil, err
		}
		name := key.(string)
		if len(name) < 6 || slices.Contains(plainWords, name) {
			continue // an ordinary word
		}
		e := entry{patterns: []string{quote(name)}, categories: []string{"ai"}}
		e.operator, e.url = link(facts.Operator)
		if f := strings.ToLower(facts.Function); strings.Contains(f, "assistant") || strings.Contains(f, "agents") ||
			strings.Contains(f, "user") {
			e.categories = []string{"ai", "fetcher"}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

var plainWords = []string{"Spider", "Cursor", "Operator", "OpenAI"}

func quote(s string) string {
	return strings.NewReplacer(`.`, `\.`, `(`, `\(`, `)`, `\)`, `+`, `\+`, `/`, `\/`).Replace(s)
}

// link splits "[Name](URL)".
func link(s string) (name, url string) {
	if rest, found := strings.CutPrefix(s, "["); found {
		if name, url, found := strings.Cut(rest, "]("); found {
			url, _, _ = strings.Cut(url, ")")
			return name, url
		}
	}
	if strings.HasPrefix(s, "Unclear") || len(s) > 40 {
		return "", ""
	}
	return s, ""
}
