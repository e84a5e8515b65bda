package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(stateless{m}, map[string]func(){"fairshare": func() { os.Exit(run(os.Args[1:], process())) }})
}

// A stateless run of tests does not use the state folder of the user.
type stateless struct{ *testing.M }

func (s stateless) Run() int {
	state, err := os.MkdirTemp("", "fairshare-state")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(state)
	os.Unsetenv("STATE_DIRECTORY")
	os.Setenv("XDG_STATE_HOME", state)
	return s.M.Run()
}

// TestScripts runs the program as a process, one behavior a file.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireUniqueNames: true})
}
