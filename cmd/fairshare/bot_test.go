package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/bots"
	"fairshare/internal/cli"
)

// A published answers for one URL; all others cannot be reached.
type published struct{ url, body string }

func (p published) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.String() != p.url {
		return nil, errors.New("cannot be reached")
	}
	return &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(p.body)), Request: r}, nil
}

// The bot command uses the ranges in the state folder of serve.
func TestBotUsesRangesInTheStateFolder(t *testing.T) {
	state := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refresh := bots.Refresh{
		Folder:    filepath.Join(state, "ranges"),
		Transport: published{"https://openai.com/gptbot.json", `{"prefixes":[{"ipv4Prefix":"192.0.2.0/24"}]}`},
	}
	ranges, done := bots.NewRanges(), make(chan error, 1)
	go func() { done <- ranges.Run(ctx, refresh) }()
	kept := func() bool {
		files, err := filepath.Glob(filepath.Join(refresh.Folder, "gptbot.copy"))
		return err == nil && len(files) == 1
	}
	for !kept() && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // no signal says when the copy is written
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	policy := writeFile(t, "site.yaml", "bots: {refresh: 24h}\ndns: {server: 127.0.0.1:1}\nrules: []\n")
	for folder, want := range map[string]string{state: "gptbot (ai, ai-training): verified\n",
		t.TempDir(): "gptbot (ai, ai-training): forged\n"} {
		var stdout, stderr bytes.Buffer
		env := &cli.Environment{Context: t.Context(), Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr}
		if code := run([]string{"bot", "-c", policy, "--state", folder, "GPTBot/1.2", "--addr", "192.0.2.1"},
			env); code != 0 || !strings.HasPrefix(stdout.String(), want) {
			t.Errorf("%d\n%s%s", code, stdout.String(), stderr.String())
		}
	}
}

// A signal ends the bot command while it waits for standard input.
func TestSignalEndsTheBotCommand(t *testing.T) {
	in, silent := io.Pipe()
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run([]string{"bot", "-"}, &cli.Environment{Context: ctx, Stdin: in, Stdout: io.Discard,
		Stderr: io.Discard}); code != cli.ExitFailed {
		t.Errorf("exit code %d", code)
	}
}
