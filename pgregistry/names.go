package pgregistry

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A ConfirmedName is an address of a bot with the host names that the DNS has confirmed.
type ConfirmedName struct {
	Addr  netip.Addr
	Names []string
	Ago   time.Duration // since it was written; ignored by WriteNames
}

const (
	mostNames   = 1 << 16        // rows
	namesStay   = 24 * time.Hour // as long as a resolver uses them
	databaseNow = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"
)

// WriteNames records addresses of bots, so that other servers need not ask the DNS. It removes
// those that are too old. With too many, it does not add new ones.
func (r *Registry) WriteNames(ctx context.Context, all []ConfirmedName) error {
	if len(all) == 0 {
		return nil
	}
	return r.writing(ctx, false, []int{lockRecordsShared}, func(t *tx) error {
		if _, err := t.exec("DELETE FROM {}names WHERE addr IN (SELECT addr FROM {}names WHERE at < "+databaseNow+
			" - $1 ORDER BY addr LIMIT 1000 FOR UPDATE SKIP LOCKED)", int64(namesStay)); err != nil {
			return err
		}
		var c columns
		seen := map[netip.Addr]bool{}
		for i := range all {
			if addr := all[i].Addr.Unmap().WithZone(""); addr.IsValid() && !seen[addr] {
				seen[addr] = true
				c.add(addr.AsSlice(), encode(strings.Join(all[i].Names, " ")))
			}
		}
		if c.arrays == nil {
			return nil
		}
		_, err := t.exec("INSERT INTO {}names (addr, names, at) SELECT addr, names, "+databaseNow+
			" FROM unnest($2::bytea[], $3::text[]) AS d (addr, names) WHERE (SELECT count(*) FROM {}names) < $1 ORDER BY addr ON CONFLICT (addr) "+
			"DO UPDATE SET names = excluded.names, at = excluded.at", c.args(mostNames)...)
		return err
	})
}

// NamesSince calls each for the addresses that were written after a time by the clock of the
// database, in Unix ns; 0 means all. It returns the time of the last one, or after.
func (r *Registry) NamesSince(ctx context.Context, after int64, each func(ConfirmedName)) (last int64, err error) {
	err = r.reading(ctx, func(ctx context.Context, from *pgxpool.Conn) error {
		last = after
		return r.rows(ctx, from, "SELECT addr, names, at, "+databaseNow+" FROM {}names "+
			"WHERE at > $1 ORDER BY at LIMIT $2", []any{after, mostNames}, func(rows pgx.Rows) error {
			var addr []byte
			var names string
			var now int64
			if err := rows.Scan(&addr, &names, &last, &now); err != nil {
				return err
			}
			if err := decodeAll(&names); err != nil {
				return err
			}
			c := ConfirmedName{Names: strings.Fields(names), Ago: time.Duration(now - last)}
			c.Addr, _ = netip.AddrFromSlice(addr)
			each(c)
			return nil
		})
	})
	return last, err
}
