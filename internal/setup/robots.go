package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"fairshare/bots"
	"fairshare/internal/cli"
	"fairshare/robots"
)

// BotOfToken returns the name of the bot that a product token of a robots.txt
// names; "" if the table has none.
func BotOfToken(table *bots.Table, token string) string {
	for _, userAgent := range []string{token, token + "/1.0"} {
		if b, text := table.Recognise(userAgent); b != nil && text != "" && b.Name != "no-browser" {
			return b.Name
		}
	}
	return ""
}

const (
	robotsTimeout   = 20 * time.Second
	robotsRedirects = 5 // RFC 9309 §2.3.1.2
)

// ReadRobots reads a robots.txt from a file or a URL, for a command. A URL without a path means
// /robots.txt. A site without one has a file without rules.
func ReadRobots(ctx context.Context, source string, table *bots.Table) (*robots.File, error) {
	var text []byte
	var err error
	if strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://") {
		text, err = fetchRobots(ctx, source)
	} else {
		text, err = readRobotsFile(source)
	}
	if err != nil {
		return nil, cli.Hint(fmt.Errorf("--robots: %w", err), "a file, or a URL such as https://www.example.org/robots.txt")
	}
	file, err := robots.Parse(text, func(token string) string { return BotOfToken(table, token) })
	if err != nil {
		return nil, fmt.Errorf("--robots: %s is not a robots.txt: %w", source, err)
	}
	return file, nil
}

func readRobotsFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, robots.MaxBytes+1))
}

// noRobots is the file of a site that has none.
const noRobots = "# The site has no robots.txt: everything is allowed.\n"

func fetchRobots(ctx context.Context, source string) ([]byte, error) {
	u, err := url.Parse(source)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL", source)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/robots.txt"
	}
	ctx, cancel := context.WithTimeout(ctx, robotsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "fairshare (reads robots.txt)")
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: robotsTimeout}).DialContext, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > robotsRedirects {
				return errors.New("more than five redirects")
			}
			return nil
		}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return []byte(noRobots), nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers with status %d", u.Redacted(), resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, robots.MaxBytes+1))
}
