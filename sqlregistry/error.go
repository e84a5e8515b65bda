package sqlregistry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"fairshare/registry"
	"fairshare/registry/key"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The kinds of an [Error]. Test for them with errors.Is.
var (
	ErrDamaged  = registry.ErrDamaged
	ErrNewer    = registry.ErrNewer
	ErrMissing  = registry.ErrMissing
	ErrBusy     = registry.ErrBusy
	ErrFull     = registry.ErrFull
	ErrReadOnly = registry.ErrReadOnly
	ErrGone     = registry.ErrGone
)

// An Error reports a problem with a registry's file. errors.Is finds its kind.
type Error struct {
	Path    string
	Kind    error  // one of the errors above; nil for any other problem
	Details string // may be "" unless Kind is nil
}

func (e *Error) Error() string {
	switch {
	case e.Kind == nil:
		return fmt.Sprintf("registry %s: %s", e.Path, e.Details)
	case e.Details == "":
		return fmt.Sprintf("registry %s: %v", e.Path, e.Kind)
	}
	return fmt.Sprintf("registry %s: %v: %s", e.Path, e.Kind, e.Details)
}

func (e *Error) Unwrap() error { return e.Kind }

// Hint says what to do about the error; "" if there is no hint.
func (e *Error) Hint() string {
	switch e.Kind {
	case ErrDamaged:
		return fmt.Sprintf(
			"stop the server, move %s, %s-wal and %s-shm away and start it again (bans and operators' decisions are lost), or restore a copy; --registry none runs without a registry", e.Path, filepath.Base(e.Path), filepath.Base(e.Path))
	case ErrNewer:
		return fmt.Sprintf(
			"run the newer fairshare, or restore the copy that it made (%s.v…); --registry none runs without a registry", e.Path)
	case ErrMissing:
		return "start the server first, or give its state folder by --state"
	case ErrBusy:
		return "try again; if the error remains, another program has locked the file"
	case ErrFull:
		return "free space on the disk"
	case ErrGone:
		return "restore the file, or restart the server: it creates a new file if there is none"
	case ErrReadOnly:
		return "run this as the owner of the file, and check that the disk is not mounted read-only"
	}
	return ""
}

// fault returns err as an *Error. An error that the context caused stays as it is.
func fault(ctx context.Context, path string, err error) error {
	var known *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) || errors.Is(err, key.ErrNoClient) || errors.Is(err, registry.ErrArgument):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("registry %s: %w", path, ctx.Err())
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("registry %s: %w", path, err)
	case errors.Is(err, sql.ErrConnDone) || errors.Is(err, errClosed):
		return &Error{Path: path, Details: "closed"}
	case errors.Is(err, sql.ErrNoRows):
		return &Error{Path: path, Kind: ErrDamaged, Details: "a row is missing"}
	}
	var s *sqlite.Error
	if !errors.As(err, &s) { // a value is not of its column's type
		return &Error{Path: path, Kind: ErrDamaged, Details: "a row is not valid"}
	}
	switch code := s.Code(); code & 0xff {
	case sqlite3.SQLITE_CORRUPT:
		return &Error{Path: path, Kind: ErrDamaged}
	case sqlite3.SQLITE_NOTADB:
		return &Error{Path: path, Kind: ErrDamaged, Details: "not an SQLite file"}
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH,
		sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
		return &Error{Path: path, Kind: ErrDamaged, Details: "it does not have the tables of a registry"}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return &Error{Path: path, Kind: ErrBusy}
	case sqlite3.SQLITE_FULL:
		return &Error{Path: path, Kind: ErrFull}
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return &Error{Path: path, Kind: ErrReadOnly}
	case sqlite3.SQLITE_CANTOPEN:
		return &Error{Path: path, Kind: ErrReadOnly, Details: "it, or a file next to it, cannot be opened"}
	case sqlite3.SQLITE_IOERR:
		switch code {
		case sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_IN_PAGE:
			return &Error{Path: path, Kind: ErrFull}
		case sqlite3.SQLITE_IOERR_CORRUPTFS, sqlite3.SQLITE_IOERR_DATA:
			return &Error{Path: path, Kind: ErrDamaged}
		}
		return &Error{Path: path, Details: fmt.Sprintf("the disk fails (%v)", s)}
	}
	return &Error{Path: path, Details: s.Error()}
}

// folderFault returns an error about a file next to the registry as an *Error.
func folderFault(path string, err error) error {
	var p *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &Error{Path: path, Kind: ErrFull}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &Error{Path: path, Kind: ErrReadOnly, Details: "its folder cannot be written, either"}
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Path: path, Kind: ErrMissing, Details: "its folder does not exist"}
	case errors.As(err, &p):
		return &Error{Path: path, Details: err.Error()}
	}
	return err
}
