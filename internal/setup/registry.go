package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairshare"
	"fairshare/pgregistry"
	"fairshare/policyfile"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// remoteTime bounds how long a command waits for a database that is away.
const remoteTime = 10 * time.Second

// Remote returns the shared registry that a policy file or --registry names; its URL is ""
// if there is none.
func Remote(file *policyfile.File, flag string) sqlregistry.Remote {
	g := &file.Registry
	remote := sqlregistry.Remote{URL: cmp.Or(flag, g.URL), Schema: g.Schema, ListenURL: g.ListenURL}
	if g.PasswordFile != "" {
		remote.PasswordFile = credential(file, g.PasswordFile)
	}
	return remote
}

// credential returns the path of a file with a secret: one of that name in systemd's folder
// for credentials, else next to the policy file.
func credential(file *policyfile.File, name string) string {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" && !filepath.IsAbs(name) {
		if path := filepath.Join(dir, name); isFile(path) {
			return path
		}
	}
	path := file.ResolvePath(name)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// RemoteOptions returns the options to open a shared registry. The file with the password is
// read for each connection, so that it may change.
func RemoteOptions(remote sqlregistry.Remote) pgregistry.Options {
	o := pgregistry.Options{Schema: remote.Schema, ListenURL: remote.ListenURL}
	if remote.PasswordFile != "" {
		o.Password = func() (string, error) {
			text, err := os.ReadFile(remote.PasswordFile)
			if err != nil {
				return "", fmt.Errorf("password_file: %w", err)
			}
			return strings.TrimRight(string(text), "\r\n"), nil
		}
	}
	return o
}

// IsAway reports whether an error of a shared registry may pass: until then a server uses
// its own registry.
func IsAway(err error) bool {
	return errors.Is(err, registry.ErrAway) || errors.Is(err, registry.ErrBusy) || errors.Is(err, registry.ErrFull) ||
		errors.Is(err, registry.ErrReadOnly) || errors.Is(err, context.DeadlineExceeded)
}

// OpenRegistry opens the registry of a state folder for a command: the shared one if the
// server uses one. While that is away, it is the server's own: decisions take effect on
// this machine, and the server hands them over. The log says so. now is the clock of this
// machine.
func OpenRegistry(ctx context.Context, dir string, now func() time.Time, o sqlregistry.Options) (
	registry.Registry, error) {
	local, err := sqlregistry.Open(ctx, filepath.Join(dir, RegistryFile), o)
	if err != nil {
		return nil, err
	}
	remote, err := local.Remote(ctx)
	if err != nil || remote.URL == "" {
		if err != nil {
			local.Close()
			return nil, err
		}
		return local, nil
	}
	options := RemoteOptions(remote)
	options.ReadOnly, options.MustExist, options.Log, options.Now = o.ReadOnly, true, o.Log, now
	opening, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	shared, err := pgregistry.Open(opening, remote.URL, options)
	switch {
	case err == nil:
		local.Close()
		return shared, nil
	case ctx.Err() != nil || !IsAway(err):
		local.Close()
		return nil, err
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	if o.ReadOnly {
		o.Log(fmt.Sprintf("%v: this is what the server on this machine knows", err))
		return local, nil
	}
	o.Log(fmt.Sprintf("%v: a decision takes effect on this machine now, and on the others when its server has handed it over",
		err))
	return &outbox{local, now}, nil
}

// An outbox is the registry of one server while the shared one is away. It keeps the
// decisions of operators for that.
type outbox struct {
	*sqlregistry.Registry
	now func() time.Time
}

// post stores a decision, and makes it here.
func (o *outbox) post(ctx context.Context, d registry.Decision, do func() error) error {
	if d.At.IsZero() {
		d.At = o.now()
	}
	if _, err := o.Post(ctx, true, d); err != nil {
		return err
	}
	return do()
}

func (o *outbox) SetOverride(ctx context.Context, r registry.OverrideRecord) error {
	return o.post(ctx, registry.Decision{Client: r.Client, Override: &r}, func() error {
		return o.Registry.SetOverride(ctx, r)
	})
}

func (o *outbox) RemoveOverride(ctx context.Context, id fairshare.ClientID) (was *registry.OverrideRecord, err error) {
	err = o.post(ctx, registry.Decision{Client: id, Remove: true}, func() error {
		was, err = o.Registry.RemoveOverride(ctx, id)
		return err
	})
	return was, err
}

func (o *outbox) Label(ctx context.Context, l registry.Label) error {
	return o.post(ctx, registry.Decision{Client: l.Client, Label: &l.Name}, func() error {
		return o.Registry.Label(ctx, l)
	})
}

func (o *outbox) Unlabel(ctx context.Context, id fairshare.ClientID, name string) (removed []string, err error) {
	err = o.post(ctx, registry.Decision{Client: id, Unlabel: &name}, func() error {
		removed, err = o.Registry.Unlabel(ctx, id, name)
		return err
	})
	return removed, err
}

func (o *outbox) Note(ctx context.Context, id fairshare.ClientID, text string) error {
	return o.post(ctx, registry.Decision{Client: id, Note: &text}, func() error {
		return o.Registry.Note(ctx, id, text)
	})
}

func (o *outbox) SetAttackMode(ctx context.Context, mode registry.AttackMode) error {
	return o.post(ctx, registry.Decision{Attack: &mode}, func() error { return o.Registry.SetAttackMode(ctx, mode) })
}

func (o *outbox) Lift(ctx context.Context, id fairshare.ClientID, at time.Time) (lifted []fairshare.BanRecord,
	err error) {
	err = o.post(ctx, registry.Decision{Client: id, At: at, Lift: true}, func() error {
		lifted, err = o.Registry.Lift(ctx, id, at)
		return err
	})
	return lifted, err
}

func (o *outbox) Reset(ctx context.Context, id fairshare.ClientID, at time.Time) (lifted []fairshare.BanRecord,
	err error) {
	err = o.post(ctx, registry.Decision{Client: id, At: at, Reset: true}, func() error {
		lifted, err = o.Registry.Reset(ctx, id, at)
		return err
	})
	return lifted, err
}

func (o *outbox) Forget(ctx context.Context, id fairshare.ClientID, at time.Time) (f registry.Forgotten, err error) {
	err = o.post(ctx, registry.Decision{Client: id, At: at, Forget: true}, func() error {
		f, err = o.Registry.Forget(ctx, id, at)
		return err
	})
	return f, err
}
