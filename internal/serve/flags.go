package serve

import (
	"errors"
	"fmt"
	"io"

	"fairshare/clientaddr"
	"fairshare/internal/cli"
	"fairshare/internal/proxy"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

const (
	defaultListen = "127.0.0.1:8080"
	upstreamHint  = "give the site's own scheme, host and port: http://127.0.0.1:3000"
)

// Flags are the settings of the command line that replace those of the policy
// file. The zero Flags replace nothing.
type Flags struct {
	Policy   string // the policy file; "" means the built-in policy
	Listen   string
	Upstream string
	Behind   string // the kind of proxy in front, a name of clientaddr.BehindNames
	DryRun   bool
	Auth     bool // answer the questions of another server: no request is passed on

	// AuthListen is an address for the questions of another server, next to Listen; "" for none.
	AuthListen string
	// SettleFrom is the access log of the server that asks; "" for none.
	SettleFrom string
}

// load reads the policy file and applies the flags. Errors with a position, and
// warnings, are written to w.
func (f *Flags) load(w io.Writer) (*policyfile.File, error) {
	if err := f.checkAuthFlags(); err != nil {
		return nil, err
	}
	file, err := setup.LoadPolicy(f.Policy, w)
	if err != nil {
		return nil, err
	}
	if f.Listen != "" {
		if err := checkListen(f.Listen); err != nil {
			return nil, wrongFlag("--listen", err, listenHint)
		}
		file.Listen = f.Listen
	}
	if file.Listen == "" {
		file.Listen = defaultListen
		if f.Auth {
			file.Listen = defaultAuthListen
		}
	}
	if f.Upstream != "" {
		if _, err := proxy.ParseUpstream(f.Upstream); err != nil {
			return nil, wrongFlag("--upstream", err, upstreamHint)
		}
		if len(file.Sites) > 0 {
			return nil, wrongFlag("--upstream", fmt.Errorf("%s has sites, each with an upstream of its own", file.Name),
				"remove the flag, or the sites")
		}
		file.Upstream = f.Upstream
	}
	if f.Behind != "" {
		preset, err := clientaddr.Behind(f.Behind)
		if unknown := (*clientaddr.BehindError)(nil); errors.As(err, &unknown) {
			return nil, wrongFlag("--behind", err, unknown.Hint())
		}
		if err != nil {
			return nil, err
		}
		file.TrustedProxies, file.Header = preset.Config.TrustedProxies, preset.Config.Header
	}
	if f.DryRun {
		file.Policy.DryRun = true
	}
	if f.answersQuestions() {
		if err := f.useForAuth(file, w); err != nil {
			return nil, err
		}
	}
	if !f.Auth {
		file.Share = file.ServedShare()
	}
	return file, nil
}

func wrongFlag(flag string, err error, hint string) error {
	return cli.WrongUsage(cli.Hint(fmt.Errorf("%s: %w", flag, err), hint))
}

// proxySetup returns how the proxy in front has to be configured; "" if none was
// named.
func (f *Flags) proxySetup() string {
	if f.Behind == "" {
		return ""
	}
	preset, _ := clientaddr.Behind(f.Behind) // load has checked it
	return preset.Setup
}
