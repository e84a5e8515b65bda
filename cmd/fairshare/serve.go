package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"fairshare/bots"
	"fairshare/internal/admin"
	"fairshare/internal/cli"
	"fairshare/internal/serve"
	"fairshare/pgregistry"
)

type serveCmd struct {
	Policy     string `short:"c" name:"policy" aliases:"config" placeholder:"FILE" help:"Policy file; without one the built-in policy is used."`
	Listen     string `placeholder:"ADDR" help:"Address to listen on, such as 127.0.0.1:8080, :80 or unix:/run/fairshare.sock; otherwise the policy file's, or 127.0.0.1:8080."`
	Upstream   string `placeholder:"URL" help:"The site to protect, such as http://127.0.0.1:3000; otherwise the policy file's."`
	Auth       string `placeholder:"ADDR" help:"Address for the questions of another server, such as nginx with auth_request, next to --listen: 127.0.0.1:9180 or unix:/run/fairshare/auth.sock."`
	SettleFrom string `placeholder:"LOG" help:"Access log of the server that asks at --auth, with the references of its requests: errors, bytes and time are counted from it."`
	Behind     string `placeholder:"NAME" help:"The proxy in front: ${behind}; sets the trusted proxies and their header."`
	State      string `placeholder:"DIR" help:"Folder for the registry, counters and copies of lists; otherwise systemd's, or one in the home directory."`
	Registry   string `placeholder:"URL" help:"postgres://… shares clients, bans and decisions with other servers. With none, they are not stored, and operators' commands have no effect."`
	listenerFlags
	DryRun bool `help:"Let every request pass, and report which would have been refused."`
}

// listenerFlags are the flags of commands with an admin listener.
type listenerFlags struct {
	Admin          string `placeholder:"ADDR" help:"Address for operators and their tools, besides the socket in the state folder: /metrics for Prometheus, /healthz, /readyz, pages; a loopback address or a Unix socket; others need a token or client certificates. With off there is no socket either."`
	AdminTokenFile string `placeholder:"FILE" help:"File with the token that /metrics needs (Authorization: Bearer TOKEN)."`
	AdminCert      string `placeholder:"FILE" help:"Certificate of the admin listener, for TLS (PEM)."`
	AdminKey       string `placeholder:"FILE" help:"Key of this certificate (PEM)."`
	AdminClientCA  string `name:"admin-client-ca" placeholder:"FILE" help:"Authorities (PEM): a client with a certificate of one needs no token."`
}

func (f *listenerFlags) options() admin.Options {
	return admin.Options{Addr: f.Admin, TokenFile: f.AdminTokenFile, CertFile: f.AdminCert, KeyFile: f.AdminKey,
		ClientCAFile: f.AdminClientCA}
}

func (c *serveCmd) Help() string {
	return "Each refusal and block is one line of JSON on stderr. SIGHUP loads the policy and certificates again. " +
		"SIGTERM and SIGINT let requests in progress end; the second stops at once."
}

func (c *serveCmd) Run(env *cli.Environment) error {
	return runServer(env, c.Registry, serve.Options{
		Flags: serve.Flags{Policy: c.Policy, Listen: c.Listen, Upstream: c.Upstream, Behind: c.Behind,
			DryRun: c.DryRun, AuthListen: c.Auth, SettleFrom: c.SettleFrom},
		State: c.State, Admin: c.options(),
	})
}

// runServer runs a server until it is stopped. registry is the value of --registry.
func runServer(env *cli.Environment, registry string, opts serve.Options) error {
	var err error
	if opts.NoRegistry, opts.RegistryURL, err = parseRegistry(registry); err != nil {
		return err
	}
	// The server stays when the reader of stderr ends.
	signal.Ignore(syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	defer settleMemory().Stop()
	bots.Prepare() // while the policy is read
	opts.Now, opts.Stderr, opts.Reload, opts.StopNow = env.Clock(), env.Stderr, hangups, env.StopNow
	return serve.Run(env.Context, opts)
}

// settleTime is how long after its start a server no longer uses what only the start needs.
const settleTime = 3 * time.Second

// settleMemory sets how much the heap may grow until the garbage collector runs: to five times its size during
// the start, which takes less time then, and by half when the timer fires. Then the memory that only the start
// needed is returned to the system. GOGC and GOMEMLIMIT in the environment take precedence.
func settleMemory() *time.Timer {
	ours := os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == ""
	if ours {
		debug.SetGCPercent(400)
	}
	return time.AfterFunc(settleTime, func() {
		if ours {
			debug.SetGCPercent(50)
		}
		debug.FreeOSMemory()
		forgetPages()
	})
}

// parseRegistry reads the value of --registry.
func parseRegistry(value string) (none bool, url string, err error) {
	switch {
	case value == "", value == "none":
		return value == "none", "", nil
	case !pgregistry.IsURL(value):
		return false, "", cli.WrongUsage(cli.Hint(fmt.Errorf("--registry: %q is not known", value),
			"--registry none runs without a registry; --state DIR names the folder of the registry; "+
				"--registry postgres://db/shop names a PostgreSQL server"))
	}
	if err := pgregistry.CheckURL(value); err != nil {
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			err = cli.Hint(err, hinted.Hint())
		}
		return false, "", cli.WrongUsage(err)
	}
	return false, value, nil
}
