//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// A devtools is one page of a real browser, driven by the DevTools protocol over pipes.
type devtools struct {
	t       *testing.T
	out     *os.File
	in      *bufio.Reader
	session string
	n       int
}

func openDevtools(t *testing.T) *devtools {
	t.Helper()
	cmd := chromium(t, "--remote-debugging-pipe", "about:blank")
	fromUs, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // the file descriptors 3 and 4
	err = cmd.Start()
	fromUs.Close()
	toUs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out.Close() // the browser ends
		cmd.Wait()
		in.Close()
	})
	d := &devtools{t: t, out: out, in: bufio.NewReader(in)}
	var target struct{ TargetID string }
	d.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	d.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	d.session = attached.SessionID
	for _, domain := range []string{"Page", "Accessibility"} {
		d.call(domain+".enable", nil, nil)
	}
	return d
}

// A devtoolsMessage is a call, its answer or an event.
type devtoolsMessage struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// call calls a method of the protocol and reads its result into a value, which may be nil.
func (d *devtools) call(method string, params map[string]any, result any) {
	d.t.Helper()
	d.n++
	text, err := json.Marshal(devtoolsMessage{ID: d.n, SessionID: d.session, Method: method, Params: params})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.out.Write(append(text, 0)); err != nil {
		d.t.Fatal(err)
	}
	got := d.await(func(m *devtoolsMessage) bool { return m.ID == d.n })
	if got.Error != nil {
		d.t.Fatalf("%s: %s", method, got.Error)
	}
	if result != nil {
		if err := json.Unmarshal(got.Result, result); err != nil {
			d.t.Fatalf("%s: %v", method, err)
		}
	}
}

// await reads messages until one is wanted.
func (d *devtools) await(wanted func(*devtoolsMessage) bool) devtoolsMessage {
	d.t.Helper()
	for {
		text, err := d.in.ReadBytes(0)
		if err != nil {
			d.t.Fatalf("the browser ends: %v", err)
		}
		var m devtoolsMessage
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			d.t.Fatal(err)
		}
		if wanted(&m) {
			return m
		}
	}
}

// visit opens a page and waits until it has loaded.
func (d *devtools) visit(url string) {
	d.t.Helper()
	d.call("Page.navigate", map[string]any{"url": url}, nil)
	d.await(func(m *devtoolsMessage) bool { return m.Method == "Page.loadEventFired" })
}

// look sets the width of the window in pixels, and the color scheme: light or dark.
func (d *devtools) look(width int, scheme string) {
	d.t.Helper()
	d.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 1200, "deviceScaleFactor": 1,
		"mobile": width < 600}, nil)
	d.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// value returns the value of an expression in the page.
func (d *devtools) value(expression string) any {
	d.t.Helper()
	var got struct {
		Result struct{ Value any }
	}
	d.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &got)
	return got.Result.Value
}

// submit clicks and waits for the page that follows.
func (d *devtools) submit(selector string) {
	d.t.Helper()
	quoted, err := json.Marshal(selector)
	if err != nil {
		d.t.Fatal(err)
	}
	click := "document.querySelector(" + string(quoted) + ").click()"
	d.call("Runtime.evaluate", map[string]any{"expression": click}, nil)
	d.await(func(m *devtoolsMessage) bool { return m.Method == "Page.loadEventFired" })
}

// picture stores a picture of the whole page if FAIRSHARE_SCREENSHOTS names a folder.
func (d *devtools) picture(name string) {
	d.t.Helper()
	folder := os.Getenv("FAIRSHARE_SCREENSHOTS")
	if folder == "" {
		return
	}
	var shot struct{ Data string }
	d.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), data, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// An axNode is an element as a screen reader gets it.
type axNode struct {
	NodeID, ParentID string
	Ignored          bool
	Role, Name       struct{ Value any }
	Description      struct{ Value any }
	Properties       []struct {
		Name  string
		Value struct{ Value any }
	}
	ChildIDs []string
}

func (n *axNode) role() string { text, _ := n.Role.Value.(string); return text }
func (n *axNode) name() string { text, _ := n.Name.Value.(string); return text }

// accessible returns the tree of elements that a screen reader gets.
func (d *devtools) accessible() []axNode {
	d.t.Helper()
	var tree struct{ Nodes []axNode }
	d.call("Accessibility.getFullAXTree", nil, &tree)
	return tree.Nodes
}
