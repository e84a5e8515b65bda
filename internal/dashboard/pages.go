package dashboard

import (
	"net/http"
	"strings"

	"fairshare/internal/console"
	"fairshare/internal/prose"
)

// An option is one of a choice in a form or menu.
type option struct {
	Key, Name string
	Chosen    bool
}

// options marks one of pairs of keys and names.
func options(chosen string, pairs ...string) (all []option) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, option{pairs[i], pairs[i+1], pairs[i] == chosen})
	}
	return all
}

type nowPage struct {
	*console.Now
	Chart                     *chart
	Top                       *console.TopList
	Rows                      []row
	MoreRows                  bool // there are more than Rows
	AllLink                   string
	Exact                     bool // no sum of the list has an error
	Most                      float64
	Spans, By, Sorts, Windows []option
	Kind                      string // the plural of what the list has
	Measure                   string // what it is sorted by
}

// A row is one of the list, with the part of all that is drawn, and the error of what it is sorted by.
type row struct {
	console.TopRow
	Client bool // Key is a client that has a page
	Track  bool // Key has a page with what it did over time
	Error  string
}

// kinds are the dimensions of the list, and their plurals.
var kinds = []string{"client", "clients", "network", "networks", "owner", "owners of addresses", "fleet", "fleets",
	"bot", "bots", "agent", "user agents", "path", "paths"}

var measures = []string{"requests", "requests", "refused", "refused requests", "dry_run", "dry-run refusals",
	"bytes", "bytes", "time", "time of the upstream"}

func (h *handler) showNow(r *http.Request, p *page) error {
	q := r.URL.Query()
	v := &nowPage{Now: h.console.Now()}
	p.Title, p.Data = "Now", v
	s := spans[0]
	for _, known := range spans {
		v.Spans = append(v.Spans, option{known.Key, known.Name, false})
		if known.Key == q.Get("span") {
			s = known
		}
	}
	for i := range v.Spans {
		v.Spans[i].Chosen = v.Spans[i].Key == s.Key
	}
	v.Chart = newChart(h.console.Series(s.length).Points, s, v.At)
	by, sort := choice(r, "by", console.Dimensions...), choice(r, "sort", console.Sorts...)
	window := choice(r, "window", "15m", "1m", "1h")
	v.By, v.Sorts = options(by, kinds...), options(sort, measures...)
	v.Windows = options(window, "1m", "the last minute", "15m", "the last 15 minutes", "1h", "the last hour")
	v.Kind, v.Measure = chosen(v.By), chosen(v.Sorts)
	var err error
	if v.Top, err = h.console.Top(by, sort, window); err != nil {
		return err
	}
	rows := v.Top.Rows
	if len(rows) > topRows && q.Get("rows") != "all" {
		rows, v.MoreRows = rows[:topRows], true
		q.Set("rows", "all")
		v.AllLink = "/?" + q.Encode()
	}
	v.Exact = v.Top.Error == console.Sums{}
	for _, t := range rows {
		v.Rows = append(v.Rows, row{TopRow: t, Client: by == "client" || by == "network" || by == "bot",
			Track: by == "owner" || by == "fleet",
			Error: sumText(&t.Error, sort)})
		v.Exact = v.Exact && t.Error == console.Sums{}
	}
	return nil
}

func chosen(all []option) string {
	for _, o := range all {
		if o.Chosen {
			return o.Name
		}
	}
	return ""
}

// sumText returns the sum that a list is sorted by.
func sumText(s *console.Sums, sort string) string {
	switch sort {
	case "refused":
		return sumNumber(s.Refused)
	case "dry_run":
		return sumNumber(s.DryRun)
	case "bytes":
		return prose.Size(s.Bytes)
	case "time":
		return functions["seconds"].(func(float64) string)(s.Seconds)
	}
	return sumNumber(s.Requests)
}

func sumNumber(n int64) string { text, _ := numberText(n); return text }

// historyOf is what a client, network, owner, fleet or bot did over time.
type historyOf struct {
	*console.History
	Chart  *chart
	Spans  []option
	More   int64    // requests that there may have been besides those of the chart
	Path   string   // of the page
	Fields []option // of the page's form, besides the span: names and values
}

// history returns what a key did over time, in the span that a request names. fields are the other
// parameters of the page, in pairs of names and values.
func (h *handler) history(r *http.Request, by, key string, fields ...string) (*historyOf, error) {
	s := historySpans[0]
	v := &historyOf{Path: r.URL.Path, Fields: options("", fields...)}
	for _, known := range historySpans {
		if known.Key == r.URL.Query().Get("span") {
			s = known
		}
	}
	for _, known := range historySpans {
		v.Spans = append(v.Spans, option{known.Key, known.Name, known == s})
	}
	var err error
	if v.History, err = h.console.History(by, key, s.Key); err != nil {
		return nil, err
	}
	v.Chart = newHistoryChart(v.History, s, h.console.Now().At)
	for _, p := range v.Points {
		v.More += p.More
	}
	return v, nil
}

// showHistory shows what an owner or a fleet did; a client has more on its own page.
func (h *handler) showHistory(r *http.Request, p *page) error {
	by, key := r.URL.Query().Get("by"), strings.TrimSpace(r.URL.Query().Get("key"))
	v, err := h.history(r, by, key, "by", by, "key", key)
	if err != nil {
		return err
	}
	p.Title, p.Data = strings.ToUpper(v.By[:1])+v.By[1:]+" "+v.Key, v
	return nil
}

type clientPage struct {
	*console.Client
	History      *historyOf
	Windows      []window
	Bans         []console.Ban
	BansPager    pager
	Stories      []console.Story
	StoriesPager pager
}

// A window is what a client did in a time.
type window struct {
	Name string
	console.TopRow
}

func (h *handler) showClient(r *http.Request, p *page) error {
	name := strings.TrimSpace(r.URL.Query().Get("client"))
	p.Title = "A client"
	if name == "" {
		p.Data = &clientPage{}
		return nil
	}
	c, err := h.console.Client(r.Context(), name)
	if err != nil {
		return err
	}
	v := &clientPage{Client: c}
	if v.History, err = h.history(r, "client", name, "client", name); err != nil {
		return err
	}
	for i, row := range c.Recent {
		v.Windows = append(v.Windows, window{[]string{"Last minute", "Last 15 minutes", "Last hour"}[i], row})
	}
	v.Bans, v.BansPager = paged(r, "bans", c.Bans)
	v.Stories, v.StoriesPager = paged(r, "stories", c.Stories)
	p.Title, p.Data = c.Client, v
	return nil
}

type rulesPage struct {
	*console.Rules
	OthersPager pager
}

func (h *handler) showRules(r *http.Request, p *page) error {
	rules, err := h.console.Rules(r.Context())
	if err != nil {
		return err
	}
	v := &rulesPage{Rules: rules}
	rules.Others, v.OthersPager = paged(r, "page", rules.Others)
	p.Title, p.Data = "Rules", v
	return nil
}

func (h *handler) showBots(r *http.Request, p *page) error {
	bots, err := h.console.Bots(r.Context())
	p.Title, p.Data = "Bots", bots
	return err
}

type bansPage struct {
	*console.Bans
	BansPager, DecisionsPager pager
}

func (h *handler) showBans(r *http.Request, p *page) error {
	bans, err := h.console.Bans(r.Context())
	if err != nil {
		return err
	}
	v := &bansPage{Bans: bans}
	bans.Bans, v.BansPager = paged(r, "page", bans.Bans)
	bans.Decisions, v.DecisionsPager = paged(r, "decisions", bans.Decisions)
	p.Title, p.Data = "Bans", v
	return nil
}

type journalPage struct {
	*console.Journal
	Query console.JournalQuery
	Pager pager
}

func (h *handler) showJournal(r *http.Request, p *page) error {
	q := r.URL.Query()
	v := &journalPage{Query: console.JournalQuery{ID: strings.TrimSpace(q.Get("id")),
		Client: strings.TrimSpace(q.Get("client")), Rule: q.Get("rule"), Limit: 1000}}
	var err error
	if v.Journal, err = h.console.Journal(r.Context(), v.Query); err != nil {
		return err
	}
	v.Refusals, v.Pager = paged(r, "page", v.Refusals)
	p.Title, p.Data = "Journal", v
	return nil
}

// showReload shows what a reload of the policy file would change.
func (h *handler) showReload(r *http.Request, p *page) error {
	changes, err := h.console.Changes(r.Context())
	p.Title, p.Data = "Reload the policy", changes
	return err
}
