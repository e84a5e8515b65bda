package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/remote"
	"fairshare/internal/setup"
)

// adminFlags are the flags of the commands that ask a running server.
type adminFlags struct {
	State          string `placeholder:"DIR" help:"Folder of the server's state, where its socket is; otherwise that of the user, or of the unit fairshare."`
	Admin          string `placeholder:"ADDR" env:"FAIRSHARE_ADMIN" help:"Admin listener of the server, as serve --admin names it, with https:// if it has TLS; otherwise the socket in its state folder, then 127.0.0.1:9091."`
	AdminTokenFile string `placeholder:"FILE" env:"FAIRSHARE_ADMIN_TOKEN_FILE" help:"File with the token of the listener."`
	AdminCA        string `name:"admin-ca" placeholder:"FILE" env:"FAIRSHARE_ADMIN_CA" help:"Authorities of the listener's certificate (PEM); otherwise the system's."`
	AdminCert      string `placeholder:"FILE" env:"FAIRSHARE_ADMIN_CERT" help:"Certificate to show to the listener (PEM)."`
	AdminKey       string `placeholder:"FILE" env:"FAIRSHARE_ADMIN_KEY" help:"Key of this certificate (PEM)."`
}

func (f *adminFlags) open() (*remote.Server, error) {
	return remote.Open(remote.Options{Addr: f.Admin, Sockets: setup.AdminSockets(f.State),
		OnlySockets: f.State != "", TokenFile: f.AdminTokenFile, CAFile: f.AdminCA,
		CertFile: f.AdminCert, KeyFile: f.AdminKey})
}

type statusCmd struct {
	adminFlags
}

func (c *statusCmd) Help() string {
	return "Asks a running server: requests, refusals, the load of the site, the " +
		"heaviest clients and paths, and what the rules did. A + marks a number that may be a little greater."
}

func (c *statusCmd) Run(env *cli.Environment) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return s.Status(env)
}

type explainCmd struct {
	adminFlags
	Path      string `placeholder:"PATH" help:"Path of the request, with a query if rules ask for one; without it /."`
	Method    string `placeholder:"METHOD" help:"Method of the request; without it GET."`
	Host      string `placeholder:"HOST" help:"The site's name in the request."`
	UserAgent string `placeholder:"TEXT" help:"User agent; without it the latest of the client that is recorded."`
	Client    string `arg:"" name:"ADDR" help:"The address of the client."`
}

func (c *explainCmd) Help() string {
	return "Asks a running server: for each rule whether it matches and why, and what its " +
		"limit has counted for the client until now. The request is not counted. check --try does the same " +
		"without a server, with counts of zero."
}

func (c *explainCmd) Run(env *cli.Environment) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return s.Explain(env, console.Question{Client: c.Client, Path: c.Path, Method: c.Method, Host: c.Host,
		UserAgent: c.UserAgent})
}
