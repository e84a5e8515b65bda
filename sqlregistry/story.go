package sqlregistry

import (
	"context"
	"database/sql"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

const storyColumns = "client, rule, id, addr, bot, state, action, ban, dry, status, first, last, count, until, counted, resource, used, allowed, span, method, host, path, agent, ban_began, ban_method, ban_path, robots"

// story writes a story and replaces the earlier one of its client and rule. If
// there are more than most then, it removes one.
func (t *tx) story(s *registry.Story, most int64) error {
	k, err := key.Of(s.Client)
	if err != nil {
		return nil
	}
	first, forgotten, err := t.remembered(k, s.First, s.Last)
	if err != nil || forgotten {
		return err
	}
	args := []any{
		k, s.Rule, s.ID, s.Addr.AsSlice(), s.Bot, int64(s.BotState), int64(s.Action), int64(s.Ban), s.DryRun,
		int64(s.Status),
		first, key.Nanoseconds(s.Last), s.Count, key.Nanoseconds(s.Until), s.By, s.Resource, s.Used, s.Allowed,
		int64(s.Window),
		s.Method, s.Host, s.Path, s.UserAgent, key.Nanoseconds(s.BanBegan), s.BanMethod, s.BanPath,
		s.Robots,
	}
	if !s.Addr.IsValid() {
		args[3] = []byte{}
	}
	n, err := t.exec(
		`UPDATE stories SET id = ?3, addr = ?4, bot = ?5, state = ?6, action = ?7, ban = ?8, dry = ?9, status = ?10, first = ?11, last = ?12, count = ?13,
		until = ?14, counted = ?15, resource = ?16, used = ?17, allowed = ?18, span = ?19, method = ?20, host = ?21, path = ?22, agent = ?23,
		ban_began = ?24, ban_method = ?25, ban_path = ?26, robots = ?27
		WHERE client = ?1 AND rule = ?2`, args...)
	if err != nil || n > 0 {
		return err
	}
	network := key.Network(k)
	_, err = t.exec("INSERT INTO stories ("+storyColumns+", network) VALUES (?"+strings.Repeat(", ?", len(args))+")",
		append(args, network)...)
	if err != nil {
		return err
	}
	t.stories++
	_, err = t.exec(
		"INSERT INTO networks (network, stories) VALUES (?, 1) ON CONFLICT DO UPDATE SET stories = stories + 1",
		network)
	if err != nil {
		return err
	}
	if _, stories, err := t.rowCounts(); err != nil || stories <= most {
		return err
	}
	_, err = t.dropOfMost(0)
	return err
}

// dropOfMost removes the oldest story of the network with the most stories, if it
// has more than many. If each network has only one, it removes the oldest of all.
func (t *tx) dropOfMost(many int64) (dropped bool, err error) {
	var network []byte
	var most int64
	found, err := t.row(t.ctx, "SELECT network, stories FROM networks ORDER BY stories DESC, network DESC LIMIT 1",
		nil, &network, &most)
	if err != nil || !found || most <= many {
		return false, err
	}
	n := 0
	if most > 1 {
		n, err = t.dropStories("network = ? ORDER BY last", network, 1)
	} else {
		n, err = t.dropStories("1 ORDER BY last", 1)
	}
	if err == nil && n == 0 {
		err = key.ErrRow // the count of a network is wrong
	}
	return err == nil, err
}

// dropStory removes a story.
func (t *tx) dropStory(row int64, network []byte) error {
	n, err := t.exec("DELETE FROM stories WHERE rowid = ?", row)
	if err != nil || n == 0 {
		return err
	}
	t.stories--
	if _, err = t.exec("UPDATE networks SET stories = stories - 1 WHERE network = ?", network); err != nil {
		return err
	}
	_, err = t.exec("DELETE FROM networks WHERE network = ? AND stories <= 0", network)
	return err
}

func scanStory(rows *sql.Rows) (s registry.Story, err error) {
	var k key.Key
	var addr []byte
	var status, first, last, until, span, banBegan int64
	err = rows.Scan(&k, &s.Rule, &s.ID, &addr, &s.Bot, &s.BotState, &s.Action, &s.Ban, &s.DryRun, &status, &first,
		&last, &s.Count, &until,
		&s.By, &s.Resource, &s.Used, &s.Allowed, &span, &s.Method, &s.Host, &s.Path, &s.UserAgent,
		&banBegan, &s.BanMethod, &s.BanPath, &s.Robots)
	if err != nil {
		return s, err
	}
	s.Addr, _ = netip.AddrFromSlice(addr)
	s.Status, s.Window = int(status), time.Duration(span)
	s.First, s.Last, s.Until = key.Time(first), key.Time(last), key.Time(until)
	s.BanBegan = key.Time(banBegan)
	s.Client, err = key.Client(k)
	return s, err
}

func stories(ctx context.Context, l *link, where string, args ...any) (stories []registry.Story, err error) {
	err = l.rows(ctx, "SELECT "+storyColumns+" FROM stories WHERE "+where, args, func(rows *sql.Rows) error {
		s, err := scanStory(rows)
		stories = append(stories, s)
		return err
	})
	return stories, err
}

// Story returns the stories of a reference, the latest first: usually one or none,
// at most 100.
func (r *Registry) Story(ctx context.Context, id string) (found []registry.Story, err error) {
	err = r.reading(ctx, func(l *link) error {
		found, err = stories(ctx, l, "id = ? ORDER BY last DESC, client, rule LIMIT 100", id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Stories returns the latest stories of the clients within a prefix, or of a
// bot, the latest first. A limit of 0 means 50.
func (r *Registry) Stories(ctx context.Context, id fairshare.ClientID, limit int) (found []registry.Story, err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	err = r.reading(ctx, func(l *link) error {
		found, err = storiesWithin(ctx, l, k, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func storiesWithin(ctx context.Context, l *link, k key.Key, limit int) ([]registry.Story, error) {
	if limit <= 0 {
		limit = key.UsualLimit
	}
	first, last := key.Within(k)
	return stories(ctx, l, "client BETWEEN ? AND ? ORDER BY last DESC, client, rule LIMIT ?", first, last, limit)
}
