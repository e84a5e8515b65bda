// Package operator has the commands for operators, one exported function each.
// They read and change the registry in a state folder, whether a server runs or
// not. Start with [Why] and [Ban]; all of them begin with open.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairshare"
	"fairshare/asn"
	"fairshare/internal/cli"
	"fairshare/internal/setup"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// serviceState is the state folder of the systemd unit.
const serviceState = "/var/lib/fairshare"

// An operation is one command of an operator and the registry that it uses.
type operation struct {
	*cli.Environment
	registry.Registry // nil until create, if there is none

	named    string // --state, as given
	dir      string
	settings registry.Settings
	now      time.Time // when the command started
	// ownerTable is that of the server's policy, and noOwners why there is none; both
	// zero: not yet read.
	ownerTable *asn.Live
	noOwners   string
	// overrides are those before the command; nil: not yet read.
	overrides []registry.OverrideRecord
}

// openToRead opens the registry of a state folder for reading.
func openToRead(env *cli.Environment, state string, clients ...string) (*operation, error) {
	return open(env, state, sqlregistry.Options{ReadOnly: true, MustExist: true}, clients)
}

// openToChange opens the registry to change records that are in it.
func openToChange(env *cli.Environment, state string, clients ...string) (*operation, error) {
	return open(env, state, sqlregistry.Options{MustExist: true}, clients)
}

// openOrPrepare opens the registry to add records. If there is no registry,
// create creates it: decisions can be made before the first start.
func openOrPrepare(env *cli.Environment, state string, clients ...string) (*operation, error) {
	return open(env, state, sqlregistry.Options{}, clients)
}

// open opens the registry. The arguments that name clients are checked first:
// a wrong one is wrong usage, whether there is a registry or not.
func open(env *cli.Environment, state string, opts sqlregistry.Options, clients []string) (*operation, error) {
	if err := checkClients(clients); err != nil {
		return nil, err
	}
	dir, err := registryDir(state, serviceState)
	if err != nil {
		return nil, err
	}
	o := &operation{Environment: env, named: state, dir: dir, now: env.Clock()()}
	if state == "" && dir == serviceState {
		fmt.Fprintf(env.Stderr, "fairshare: using the registry in %s\n", dir)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, cli.WrongUsage(cli.Hint(
			fmt.Errorf("%s is not a folder", dir),
			"name the folder in which serve keeps its registry: --state DIR"))
	}
	if _, err := os.Stat(o.path()); !opts.MustExist && errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err := o.use(opts); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *operation) path() string { return filepath.Join(o.dir, setup.RegistryFile) }

// use opens the registry.
func (o *operation) use(opts sqlregistry.Options) error {
	opts.Log = func(line string) { fmt.Fprintf(o.Stderr, "fairshare: %s\n", line) }
	r, err := setup.OpenRegistry(o.Context, o.dir, o.Clock(), opts)
	if err != nil {
		return o.failed(err)
	}
	o.Registry = r
	if o.settings, err = o.Settings(o.Context); err != nil {
		o.close()
		return o.failed(err)
	}
	return nil
}

// create creates the registry if it does not exist. Its files get the owner of
// the folder: a server that does not run as root has to write them.
func (o *operation) create() error {
	if o.Registry != nil {
		return nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return o.failed(err)
	}
	if err := o.use(sqlregistry.Options{}); err != nil {
		return err
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		chownToFolder(o.dir, o.path()+end)
	}
	fmt.Fprintf(o.Stderr, "fairshare: a new registry was created in %s: serve must use that folder\n", o.dir)
	return nil
}

// close closes the registry.
func (o *operation) close() {
	if o.Registry != nil {
		o.Registry.Close()
	}
}

// registryDir returns the state folder. If none is named and the default one has
// no registry, it is that of the systemd unit, if that has a registry.
func registryDir(named, service string) (string, error) {
	dir, err := setup.StateFolder(named)
	if named != "" || os.Getenv("STATE_DIRECTORY") != "" {
		return dir, err
	}
	if err == nil {
		if _, err := os.Stat(filepath.Join(dir, setup.RegistryFile)); err == nil {
			return dir, nil
		}
	}
	_, missing := os.Stat(filepath.Join(service, setup.RegistryFile))
	if missing == nil || errors.Is(missing, fs.ErrPermission) {
		return service, nil
	}
	return dir, err
}

// failed adds a hint to an error of the registry.
func (o *operation) failed(err error) error { return RegistryError(o.dir, err) }

// RegistryError adds a hint to an error of the registry in a state folder. A
// canceled command becomes cli.ErrReported.
func RegistryError(dir string, err error) error {
	var hinted interface{ Hint() string }
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return cli.ErrReported
	case errors.Is(err, registry.ErrMissing):
		return cli.Hint(fmt.Errorf("no registry in %s", dir),
			"fairshare serve creates it when it starts; if serve uses another folder, name that: --state DIR")
	case os.Geteuid() != 0 && (errors.Is(err, fs.ErrPermission) || errors.Is(err, registry.ErrReadOnly)):
		return cli.Hint(err, "only the user that runs serve may use the registry: put "+sudoFor(dir)+
			" before the command, or name another folder: --state DIR")
	case errors.As(err, &hinted) && hinted.Hint() != "":
		return cli.Hint(err, hinted.Hint())
	}
	return err
}

// command returns a command line for the same registry.
func (o *operation) command(args string) string {
	if o.named == "" {
		return "fairshare " + args
	}
	return "fairshare " + args + " --state " + shellWord(o.named)
}

// argument returns the text that names a client on the command line.
func (o *operation) argument(id fairshare.ClientID) string {
	if p := id.Prefix; p.IsValid() && p.IsSingleIP() && o.clientBits(p.Addr()) < p.Bits() {
		return p.String() // the address alone would mean its client
	}
	return id.String()
}

// printUndo prints the command that undoes this one.
func (o *operation) printUndo(args string) { o.Printf("undo: %s", o.command(args)) }
