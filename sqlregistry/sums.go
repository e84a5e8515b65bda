package sqlregistry

import (
	"context"
	"database/sql"
	"time"

	"fairshare/registry"
	"fairshare/registry/key"
)

// Sums calls seen for each client that has sent a request. It stops when seen
// returns false. It holds no lock: it may miss a client that is written in the
// meantime. A million clients take about two seconds.
func (r *Registry) Sums(ctx context.Context, seen func(*registry.ClientSum) bool) error {
	return pages(ctx, r, "client, requests, refused, blocked, trial, cpu, took, bytes, errors, fleet, bot, state, last",
		func(rows *sql.Rows, at *int64) (c registry.ClientSum, err error) {
			var k sql.RawBytes
			var cpu, took, last int64
			s := &c.Spent
			if err = rows.Scan(at, &k, &s.Requests, &s.Refused, &s.Blocked, &s.DryRun, &cpu, &took, &s.Bytes, &s.Errors,
				&c.Fleet, &c.Bot, &c.State, &last); err == nil {
				c.Client, err = key.Client(key.Key(k))
			}
			c.Last, s.CPU, s.Time = time.Unix(0, last), time.Duration(cpu), time.Duration(took)
			return c, err
		}, seen)
}

// Fleets returns the fleets of the last SetFleets.
func (r *Registry) Fleets(ctx context.Context) (all []registry.FleetRecord, err error) {
	err = r.setting(ctx, "fleets", &all)
	return all, err
}

// SetFleets records the fleets that a server has found, in place of earlier ones.
func (r *Registry) SetFleets(ctx context.Context, all []registry.FleetRecord) error {
	return r.writing(ctx, false, func(t *tx) error { return t.setSetting("fleets", all) })
}
