package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// A watched is a writer. A test can wait for a text that is written to it.
type watched struct {
	mu   sync.Mutex
	more *sync.Cond
	text bytes.Buffer
}

func newWatched() *watched {
	w := &watched{}
	w.more = sync.NewCond(&w.mu)
	return w
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more.Broadcast()
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// wait returns the last group of pattern as soon as it was written. After
// three minutes it panics, because it has no test to end.
func (w *watched) wait(pattern string) string {
	re := regexp.MustCompile(pattern)
	deadline := time.Now().Add(3 * time.Minute)
	defer time.AfterFunc(time.Until(deadline), w.more.Broadcast).Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if m := re.FindSubmatch(w.text.Bytes()); m != nil {
			return string(m[len(m)-1])
		}
		if !time.Now().Before(deadline) {
			panic(fmt.Sprintf("%s was not written, but:\n%s", pattern, w.text.Bytes()))
		}
		w.more.Wait()
	}
}

// A running is serve in the process of the tests.
type running struct {
	addr   string
	stderr *watched
	stop   func() int // stops serve and returns the exit code
}

// startServe runs serve with a policy on a free port. A policy of "" is the
// built-in one, unless args name one.
func startServe(t *testing.T, policy string, args ...string) *running {
	t.Helper()
	args = ownState(t, args)
	if policy != "" {
		args = append(args, "-c", writeFile(t, "site.yaml", policy))
	}
	return runServe(t, nil, args...)
}

// runServe runs serve until the test ends, and waits for its address. A now of
// nil means the system's clock.
func runServe(t *testing.T, now func() time.Time, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &running{stderr: newWatched()}
	env := &cli.Environment{Context: ctx, Stdout: io.Discard, Stderr: s.stderr, Now: now}
	exit := make(chan int, 1)
	go func() { exit <- run(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), env) }()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-exit
	})
	t.Cleanup(func() { s.stop() })
	s.addr = s.stderr.wait(`(?:https?://)?(\S+) protects`)
	return s
}

// ownState adds a new state folder to the arguments if they name none, so that
// the tests have separate registries.
func ownState(t *testing.T, args []string) []string {
	if slices.Contains(args, "--state") {
		return args
	}
	return append([]string{"--state", filepath.Join(t.TempDir(), "state")}, args...)
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeOver replaces a file at once, as editors do.
func writeOver(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// newCertificate writes a certificate for 127.0.0.1 and its key to files.
func newCertificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return writeFile(t, "cert.pem", string(certPEM)),
		writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))), roots
}
