package pgregistry

import (
	"context"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func (r *Registry) scanStory(rows pgx.Rows) (s registry.Story, err error) {
	var k key.Key
	var addr []byte
	var state, action, ban int16
	var first, last, until, span, banBegan int64
	err = rows.Scan(&k, &s.Rule, &s.ID, &addr, &s.Bot, &state, &action, &ban, &s.DryRun, &s.Status, &first, &last,
		&s.Count, &until, &s.By, &s.Resource, &s.Used, &s.Allowed, &span, &s.Method, &s.Host, &s.Path, &s.UserAgent,
		&banBegan, &s.BanMethod, &s.BanPath, &s.Robots)
	if err != nil {
		return s, err
	}
	if err = decodeAll(&s.Rule, &s.ID, &s.Bot, &s.By, &s.Resource, &s.Method, &s.Host, &s.Path, &s.UserAgent,
		&s.BanMethod, &s.BanPath, &s.Robots); err != nil {
		return s, err
	}
	s.Addr, _ = netip.AddrFromSlice(addr)
	s.BotState, s.Action, s.Ban = fairshare.BotState(state), fairshare.Action(action), fairshare.BanState(ban)
	s.Window = time.Duration(span)
	s.First, s.Last = r.fromDatabase(first), r.fromDatabase(last)
	s.Until, s.BanBegan = r.fromDatabase(until), r.fromDatabase(banBegan)
	s.Client, err = key.Client(k)
	return s, err
}

// stories reads stories into all.
func (r *Registry) stories(ctx context.Context, from querier, all *[]registry.Story, where string, args ...any) error {
	*all = nil
	return r.rows(ctx, from, "SELECT "+storyColumns+" FROM {}stories WHERE "+where, args, func(rows pgx.Rows) error {
		s, err := r.scanStory(rows)
		*all = append(*all, s)
		return err
	})
}

// Story returns the stories of a reference, the latest first: usually one or none, at
// most 100.
func (r *Registry) Story(ctx context.Context, id string) (found []registry.Story, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		return r.stories(ctx, from, &found, "id = $1 ORDER BY last DESC, client, rule LIMIT 100", encode(id))
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Stories returns the latest stories of the clients within a prefix, or of a bot, the
// latest first. A limit of 0 means 50.
func (r *Registry) Stories(ctx context.Context, id fairshare.ClientID, limit int) (found []registry.Story, err error) {
	k, err := key.Of(id)
	if err != nil {
		return nil, err
	}
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		return r.storiesWithin(ctx, from, k, limit, &found)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// storiesWithin reads the latest stories of the clients within k into all; a limit of 0 means 50.
func (r *Registry) storiesWithin(ctx context.Context, from querier, k key.Key, limit int, all *[]registry.Story) error {
	if limit <= 0 {
		limit = key.UsualLimit
	}
	first, last := key.Within(k)
	return r.stories(ctx, from, all, "client BETWEEN $1 AND $2 ORDER BY last DESC, client, rule LIMIT $3", first, last,
		limit)
}
