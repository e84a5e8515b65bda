// Package setup opens a policy file and what it names: lists, bots, the DNS,
// trusted proxies and the state folder. All commands and the public package site
// share it, so that a policy means the same in each of them. Start with
// [ReadPolicy].
package setup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"fairshare/clientaddr"
	"fairshare/internal/cli"
	"fairshare/internal/proxy"
	"fairshare/policyfile"
)

// ReadPolicy reads a policy file; "" means the built-in policy. Its names of
// bots, headers and files are checked. The error is one of [policyfile.Faults],
// or has a hint.
func ReadPolicy(path string) (*policyfile.File, error) {
	if path == "" {
		return policyfile.BuiltIn(), nil
	}
	file, err := policyfile.Options{Bots: BotNames, CostHeader: proxy.CheckCostHeader,
		KeepHeader: proxy.CheckKeepHeader}.Load(path)
	if errors.Is(err, fs.ErrNotExist) && len(policyfile.Faults(err)) == 0 {
		err = cli.Hint(err, "fairshare policy > site.yaml writes the built-in policy to a file for you to edit")
	}
	return file, err
}

// LoadPolicy is ReadPolicy for a command: it writes errors with a position, and
// warnings, to w.
func LoadPolicy(path string, w io.Writer) (*policyfile.File, error) {
	file, err := ReadPolicy(path)
	if err != nil {
		return nil, PrintFaults(w, err)
	}
	for i := range file.Warnings {
		fmt.Fprint(w, file.Warnings[i].Long())
	}
	return file, nil
}

// PrintFaults writes the errors of a policy file, each with its position, the
// line and a hint, and then returns [cli.ErrReported]. Any other error, and
// nil, is returned as it is.
func PrintFaults(w io.Writer, err error) error {
	faults := policyfile.Faults(err)
	for _, fault := range faults {
		fmt.Fprint(w, fault.Text())
	}
	if len(faults) > 0 {
		return cli.ErrReported
	}
	return err
}

// NewResolver returns the resolver of client addresses for a policy file. Its
// lists have to be open: trusted proxies may be among them.
func NewResolver(file *policyfile.File) (*clientaddr.Resolver, error) {
	return clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header,
		Lists: file.ProxyLists(), Provisional: !file.IgnoreUnnamed})
}
