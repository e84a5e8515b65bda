package pgregistry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"fairshare/registry"
	"fairshare/registry/key"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// An Error reports a problem with a database. errors.Is finds its kind.
type Error struct {
	Where   string // server and database, without a password
	Kind    error  // one of package registry; nil for any other problem
	Details string // may be "" unless Kind is nil
	hint    string // "" for that of the kind
}

func (e *Error) Error() string {
	switch {
	case e.Kind == nil:
		return fmt.Sprintf("PostgreSQL registry %s: %s", e.Where, e.Details)
	case e.Details == "":
		return fmt.Sprintf("PostgreSQL registry %s: %v", e.Where, e.Kind)
	}
	return fmt.Sprintf("PostgreSQL registry %s: %v: %s", e.Where, e.Kind, e.Details)
}

func (e *Error) Unwrap() error { return e.Kind }

// Hint says what to do about the error; "" if there is no hint.
func (e *Error) Hint() string {
	if e.hint != "" {
		return e.hint
	}
	switch e.Kind {
	case registry.ErrAway:
		return "check that the database server runs and that the network lets this machine reach it"
	case registry.ErrDamaged:
		return "restore a backup of the schema, or drop the schema: it is created again, without its bans and decisions"
	case registry.ErrNewer:
		return "run the newer fairshare on all machines"
	case registry.ErrMissing:
		return "start a server with this registry first"
	case registry.ErrBusy:
		return "try again; if the error remains, look for long transactions in pg_stat_activity"
	case registry.ErrFull:
		return "free space on the disk of the database server"
	case registry.ErrReadOnly:
		return "name the primary server, and grant what docs/registry.md lists"
	}
	return ""
}

// reason returns the text of an error without the connection string.
func reason(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Message
	}
	var parse *pgconn.ParseConfigError
	text := err.Error()
	if errors.As(err, &parse) {
		if inner := parse.Unwrap(); inner != nil {
			text = inner.Error()
		}
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && connect.Unwrap() != nil {
		text = connect.Unwrap().Error()
	}
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// fault returns err as an *Error. An error that the caller's context caused stays as it is.
func (r *Registry) fault(ctx context.Context, err error) error {
	var known *Error
	var pg *pgconn.PgError
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, key.ErrNoClient), errors.Is(err, registry.ErrArgument):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("PostgreSQL registry %s: %w", r.where, ctx.Err())
	case errors.Is(err, errClosed):
		return &Error{Where: r.where, Details: "closed"}
	case errors.As(err, &pg):
		return r.serverFault(pg)
	case errors.Is(err, key.ErrRow):
		return &Error{Where: r.where, Kind: registry.ErrDamaged, Details: "a row is not valid"}
	case errors.Is(err, pgx.ErrNoRows):
		return &Error{Where: r.where, Kind: registry.ErrDamaged, Details: "a row is missing"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Where: r.where, Kind: registry.ErrAway, Details: "it does not answer in time"}
	case r.closing != nil && r.closing.Err() != nil:
		return &Error{Where: r.where, Details: "closed"}
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), pgconn.SafeToRetry(err), strings.Contains(err.Error(), "conn closed"),
		errors.Is(err, net.ErrClosed):
		return &Error{Where: r.where, Kind: registry.ErrAway, Details: reason(err)}
	}
	return &Error{Where: r.where, Details: reason(err)}
}

// serverFault returns an error that the server has reported. The codes are in appendix A
// of the manual of PostgreSQL.
func (r *Registry) serverFault(pg *pgconn.PgError) error {
	e := &Error{Where: r.where, Details: pg.Message}
	switch class := pg.Code[:min(2, len(pg.Code))]; {
	case pg.Code == "53100":
		e.Kind = registry.ErrFull
	case pg.Code == "25006":
		e.Kind = registry.ErrReadOnly
	case pg.Code == "42501":
		e.Kind = registry.ErrReadOnly
		e.hint = "grant the user what docs/registry.md lists"
	case pg.Code == "55P03", pg.Code == "57014", pg.Code == "25P03", class == "40":
		e.Kind = registry.ErrBusy
	case class == "08", class == "57", class == "53":
		e.Kind = registry.ErrAway
	case class == "XX", pg.Code == "42P01", pg.Code == "42703", pg.Code == "42883", pg.Code == "58P01":
		e.Kind = registry.ErrDamaged
	case class == "28":
		e.hint = "check the user in the URL and its password: password_file, or the variable PGPASSWORD"
	case pg.Code == "3D000":
		e.hint = "create it: createdb --owner=fairshare NAME"
	}
	return e
}
