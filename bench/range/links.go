//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// links are the results of the link checker of the site's owner. It is a program, so it is not counted
// among the people who were harmed.
type links struct {
	Checked int `json:"checked"`
	Refused int `json:"refused"`
}

// checkLinks runs LinkChecker over the site until ctx is done, with two requests a second.
func (c *crowd) checkLinks(ctx context.Context, from netip.Addr) {
	found, err := c.runLinkChecker(ctx, from)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links = found
	if err != nil {
		c.stalled = append(c.stalled, "link checker: "+err.Error())
	}
}

func (c *crowd) runLinkChecker(ctx context.Context, from netip.Addr) (links, error) {
	forward, err := newForwarder([]netip.Addr{from}, nil)
	if err != nil {
		return links{}, err
	}
	defer forward.close()
	dir := filepath.Join(c.dir, "links")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return links{}, err
	}
	config := filepath.Join(dir, "linkcheckerrc")
	if err := os.WriteFile(config, []byte("[checking]\nmaxrequestspersecond=2\nthreads=1\nrecursionlevel=2\n"), 0o644); err != nil {
		return links{}, err
	}
	out, err := os.Create(filepath.Join(dir, "links.log"))
	if err != nil {
		return links{}, err
	}
	defer out.Close()
	cmd := forward.command(ctx, dir, "linkchecker", "-f", config, "-v", "-o", "csv", "--no-status",
		"http://"+siteHost+"/")
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "HOME="+dir)
	cmd.Stdout = out
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return links{}, fmt.Errorf("linkchecker: %w", err)
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return links{}, err
	}
	return readLinks(out)
}

var refusedLink = regexp.MustCompile(`^(401|403|421|429|5\d\d)\b|Timeout|ConnectionError`)

// readLinks reads the CSV output of LinkChecker: the fourth field of a line is the result, such as "200 OK".
func readLinks(r io.Reader) (links, error) {
	var found links
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ";")
		if len(fields) < 8 || fields[0] == "urlname" || fields[3] == "filtered" { // a comment, the title, another site
			continue
		}
		found.Checked++
		if refusedLink.MatchString(fields[3]) {
			found.Refused++
		}
	}
	return found, lines.Err()
}
