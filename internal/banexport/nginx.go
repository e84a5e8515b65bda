package banexport

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// Nginx keeps bans in a file for nginx to include. The file has no timeouts: a ban ends
// when the file is written again.
type Nginx struct {
	Path   string
	Geo    bool     // "192.0.2.1/32 1;" for a geo block; otherwise "deny 192.0.2.1/32;"
	Reload []string // the program that makes nginx read the file, and its arguments; nil: none

	loaded bool // Reload has succeeded since the file last changed; not known of a process before
}

var _ Sink = (*Nginx)(nil)

func (n *Nginx) Name() string { return "nginx (" + n.Path + ")" }

// Every implements Sink: nginx starts new processes at each reload.
func (n *Nginx) Every() time.Duration {
	if n.Reload != nil {
		return 5 * time.Second
	}
	return 0
}

// Apply implements Sink.
func (n *Nginx) Apply(ctx context.Context, bans []Ban, _ bool) error {
	content := n.content(bans)
	file := bansFile{path: n.Path}
	if !file.holds(content) {
		if err := file.replace(content); err != nil {
			return err
		}
		n.loaded = false
	}
	if n.loaded || n.Reload == nil {
		return nil
	}
	if _, err := run(ctx, nil, n.Reload...); err != nil {
		return err
	}
	n.loaded = true
	return nil
}

// Clear implements Sink.
func (n *Nginx) Clear(ctx context.Context) error { return n.Apply(ctx, nil, true) }

func (n *Nginx) content(bans []Ban) []byte {
	b := bytes.NewBufferString("# Written by fairshare; changes are lost.\n")
	for i := range bans {
		if n.Geo {
			fmt.Fprintf(b, "%s 1; # %s\n", bans[i].Prefix, untilText(&bans[i]))
		} else {
			fmt.Fprintf(b, "deny %s; # %s\n", bans[i].Prefix, untilText(&bans[i]))
		}
	}
	return b.Bytes()
}
