package operator

import (
	"net/netip"
	"os/exec"
	"runtime"
	"testing"
)

// sudo removes the variables of ssh: they are looked for in its parent
// processes.
func TestLoginAddressIsFoundThroughSudo(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	cmd := exec.Command("cat")
	cmd.Env = []string{"A=b", "SSH_CONNECTION=198.51.100.7 50000 192.0.2.1 22"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	if _, err := in.Write([]byte{'\n'}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	if got := loginAddrOf(cmd.Process.Pid); got != netip.MustParseAddr("198.51.100.7") {
		t.Errorf("came from %v", got)
	}
}
