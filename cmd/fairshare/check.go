package main

import (
	"fmt"
	"io"

	"fairshare/policyfile"
)

type checkCmd struct {
	Files []string `arg:"" name:"file" help:"Policy files."`
}

func (c *checkCmd) Run(env *environment) error {
	failed := false
	for _, path := range c.Files {
		file, err := loadPolicy(path, env.stderr)
		if err != nil {
			failed = true
			continue
		}
		fmt.Fprintf(env.stdout, "%s: ok, %d rules\n", path, len(file.Policy.Rules))
	}
	if failed {
		return errSilent
	}
	return nil
}

// loadPolicy reads a policy file, "" for the built-in policy. Faults, each
// with its line and a hint, and warnings are written to w; the error for
// faults is errSilent.
func loadPolicy(path string, w io.Writer) (*policyfile.File, error) {
	if path == "" {
		return policyfile.BuiltIn(), nil
	}
	file, err := policyfile.Load(path)
	faults := policyfile.Faults(err)
	for _, fault := range faults {
		fmt.Fprint(w, fault.Text())
	}
	switch {
	case len(faults) > 0:
		return nil, errSilent
	case err != nil:
		fmt.Fprintf(w, "fairshare: %s\n", oneLine(err))
		return nil, errSilent
	}
	for i := range file.Warnings {
		fmt.Fprint(w, file.Warnings[i].Long())
	}
	return file, nil
}
