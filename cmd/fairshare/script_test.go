package main

import (
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(stateless{m}, map[string]func(){"fairshare": func() {
		env := process()
		if off, err := time.ParseDuration(os.Getenv(clockVariable)); err == nil {
			env.Now = func() time.Time { return time.Now().Add(off) }
		}
		os.Exit(run(os.Args[1:], env))
	}})
}

// clockVariable has the program of the tests run with a system clock that is off by a duration.
const clockVariable = "FAIRSHARE_TEST_CLOCK"

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
	if testing.Short() {
		t.Skip("long, and tests commands only")
	}
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireUniqueNames: true})
}
