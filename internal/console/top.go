package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/toplist"
	"fairshare/internal/traffic"
)

// Dimensions are what Top can list.
var Dimensions = []string{"client", "network", "owner", "fleet", "bot", "agent", "path"}

// Sorts are the measures that Top can sort by.
var Sorts = []string{"requests", "refused", "dry_run", "bytes", "time"}

// Windows are the times that Top can look back.
var Windows = map[string]time.Duration{"1m": time.Minute, "15m": 15 * time.Minute, "1h": time.Hour}

// MostRows is how many rows Top returns at most.
const MostRows = 100

type topKey struct{ by, sort, window string }

// Top lists the keys of a dimension with the greatest sums in a window. It computes a list at most once a
// second.
func (c *Console) Top(by, sort, window string) (*TopList, error) {
	d, m := slices.Index(Dimensions, by), slices.Index(Sorts, sort)
	length := Windows[window]
	switch {
	case d < 0:
		return nil, wrong("by", by, Dimensions)
	case m < 0:
		return nil, wrong("sort", sort, Sorts)
	case length == 0:
		return nil, wrong("window", window, []string{"1m", "15m", "1h"})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Policy.Now()
	if now.Sub(c.at) >= time.Second || now.Before(c.at) {
		c.top, c.at = map[topKey]*TopList{}, now
	}
	key := topKey{by, sort, window}
	if list := c.top[key]; list != nil {
		return list, nil
	}
	w := c.counts().Top(traffic.Dimension(d), length, now)
	list := &TopList{By: by, Sort: sort, From: c.Policy.Wall(w.From).UTC(), To: c.Policy.Wall(w.To).UTC(),
		Rows: []TopRow{}}
	var total, most toplist.Amounts
	for k := range total {
		total[k], most[k] = w.Total(k), w.Error(k)
	}
	list.Total, list.Error = sumsOf(total), sumsOf(most)
	for _, row := range w.Top(m, MostRows) {
		if row.Low[m] <= 0 {
			break
		}
		r := topRow(&row)
		r.Key, r.Name = keyText(traffic.Dimension(d), row.Key)
		if total[m] > 0 {
			r.Share = float64(row.Low[m]) / float64(total[m])
		}
		list.Rows = append(list.Rows, r)
	}
	c.top[key] = list
	return list, nil
}

// topRow returns the sums of a row and their errors.
func topRow(row *toplist.Row) TopRow {
	var errors toplist.Amounts
	for k := range errors {
		errors[k] = row.High[k] - row.Low[k]
	}
	return TopRow{Sums: sumsOf(row.Low), Error: sumsOf(errors)}
}

func sumsOf(a toplist.Amounts) Sums {
	return Sums{Requests: a[traffic.Requests], Refused: a[traffic.Refused], DryRun: a[traffic.DryRun],
		Bytes: a[traffic.Bytes], Seconds: time.Duration(a[traffic.Time]).Seconds()}
}

// keyText returns a key as people read it, and more about it.
func keyText(d traffic.Dimension, key string) (text, name string) {
	switch d {
	case traffic.Clients, traffic.Networks:
		return traffic.ParseClient(key).String(), ""
	case traffic.Owners:
		owner := traffic.ParseOwner(key)
		return fmt.Sprintf("AS%d", owner.ASN), owner.Name
	case traffic.Bots:
		bot := traffic.ParseBot(key)
		return bot.Name, bot.State.String()
	}
	return key, ""
}

func wrong(what, given string, known []string) error {
	return cli.WrongUsage(cli.Hint(fmt.Errorf("%s: %q is not known", what, given), "it is "+strings.Join(known,
		", ")))
}
