package pgregistry

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"fairshare/registry"

	"github.com/jackc/pgx/v5"
)

// tablesVersion returns the version of the tables; 0 if there are none.
func (r *Registry) tablesVersion(ctx context.Context, from querier) (version int, err error) {
	var there bool
	// Not to_regclass: within a transaction it may not see a table that another one has created.
	if _, err := r.row(ctx, from, "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "+
		"WHERE n.nspname = $1 AND c.relname = 'version')", []any{r.o.Schema}, &there); err != nil {
		return 0, err
	}
	if !there {
		return 0, nil
	}
	found, err := r.row(ctx, from, "SELECT version FROM {}version WHERE id = 1", nil, &version)
	if err == nil && (!found || version < 1) {
		err = &Error{Where: r.where, Kind: registry.ErrDamaged, Details: "the table version has no row"}
	}
	return version, err
}

// migrate creates or updates the tables. Of several processes, one does it and the
// others wait.
func (r *Registry) migrate(ctx context.Context, migrations []string) error {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SELECT "+r.locks(lockMigrate)); err != nil {
		return err
	}
	from, err := r.tablesVersion(ctx, tx) // another process may have been faster
	if err != nil || from >= len(migrations) {
		return err
	}
	run := func(text string) error { // several statements
		_, err := tx.Conn().PgConn().Exec(ctx, r.sql(text)).ReadAll()
		return err
	}
	if from > 0 { // servers of the older version finish their transactions first
		if err := run("SELECT " + r.locks(lockChanges, lockRecords)); err != nil {
			return err
		}
	}
	if from == 0 {
		var there bool
		if _, err := r.row(ctx, tx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)",
			[]any{r.o.Schema}, &there); err != nil {
			return err
		}
		if !there {
			if err := run("CREATE SCHEMA " + r.schema); err != nil {
				return err
			}
		}
		if err := run("CREATE TABLE {}version (id integer PRIMARY KEY CHECK (id = 1), version integer NOT NULL); " +
			"INSERT INTO {}version VALUES (1, 1)"); err != nil {
			return err
		}
	}
	if err := run(strings.Join(migrations[from:], ";")); err != nil {
		return err
	}
	if from == 0 {
		var secret [32]byte
		_, _ = rand.Read(secret[:])
		if _, err := tx.Exec(ctx, r.sql("INSERT INTO {}settings VALUES ('reference key', $1)"), secret[:]); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, r.sql("UPDATE {}version SET version = $1"), len(migrations)); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if from == 0 {
		r.o.Log(fmt.Sprintf("PostgreSQL registry %s: the tables were created in schema %s", r.where, r.o.Schema))
	} else {
		r.o.Log(fmt.Sprintf("PostgreSQL registry %s: updated from version %d to %d", r.where, from, len(migrations)))
	}
	return nil
}
