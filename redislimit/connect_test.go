package redislimit

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/redislimit/redistest"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url   string
		want  target
		fault string // part of the error
	}{
		{url: "redis://cache", want: target{addrs: []string{"cache:6379"}}},
		{url: "valkey://cache:7000/2", want: target{addrs: []string{"cache:7000"}, db: 2}},
		{url: "rediss://fairshare@cache", want: target{tls: true, user: "fairshare", addrs: []string{"cache:6379"}}},
		{url: "valkeys://[::1]:7000", want: target{tls: true, addrs: []string{"[::1]:7000"}}},
		{url: "redis://[::1]", want: target{addrs: []string{"[::1]:6379"}}},
		{url: "redis+cluster://a,b:7001,c", want: target{topology: cluster,
			addrs: []string{"a:6379", "b:7001", "c:6379"}}},
		{url: "rediss+sentinel://s1,s2:26380/main/3", want: target{topology: sentinel, tls: true, master: "main", db: 3,
			addrs: []string{"s1:26379", "s2:26380"}}},
		{url: "unix:///run/redis.sock", want: target{socket: "/run/redis.sock"}},
		{url: "redis://user:secret@cache", fault: "password"},
		{url: "redis://:secret@cache", fault: "password"},
		{url: "redis://user:sec/ret@cache", fault: "password"},
		{url: "cache:6379", fault: "scheme"},
		{url: "http://cache", fault: `unknown scheme "http"`},
		{url: "redis+ring://cache", fault: `unknown scheme "redis+ring"`},
		{url: "redis://", fault: "no host"},
		{url: "redis://cache:port", fault: "port"},
		{url: "redis://]0", fault: "host"},
		{url: "redis://cache/main", fault: "database"},
		{url: "redis://a,b", fault: "redis+cluster"},
		{url: "redis+cluster://a/1", fault: "database 0"},
		{url: "redis+sentinel://a", fault: "name of the master"},
		{url: "redis://cache?db=1", fault: "query"},
		{url: "unix://host/path", fault: "unix:///path"},
	} {
		got, err := parseURL(c.url)
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: error %v, want one with %q", c.url, err, c.fault)
			}
			continue
		}
		if err != nil || got.topology != c.want.topology || got.tls != c.want.tls || got.socket != c.want.socket ||
			strings.Join(got.addrs, " ") != strings.Join(c.want.addrs, " ") || got.master != c.want.master ||
			got.user != c.want.user || got.db != c.want.db {
			t.Errorf("%s: got %+v, %v, want %+v", c.url, got, err, c.want)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, url := range []string{"redis://a", "rediss+sentinel://a,b:1/main/2", "unix:///x", "redis://u@[::1]:1/0"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		got, err := parseURL(url)
		if err != nil {
			return
		}
		if got.socket == "" && len(got.addrs) == 0 {
			t.Fatalf("%q: neither socket nor address", url)
		}
		for _, addr := range got.addrs {
			if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
				t.Fatalf("%q: address %q", url, addr)
			}
		}
	})
}

func TestConnectionIsChecked(t *testing.T) {
	for _, c := range []struct {
		connection Connection
		fault      string
	}{
		{Connection{URL: "redis://cache", CA: "ca.pem"}, "rediss"},
		{Connection{URL: "rediss://cache", Cert: "cert.pem"}, "key"},
		{Connection{URL: "rediss://cache", CA: filepath.Join(t.TempDir(), "ca.pem")}, "no such file"},
		{Connection{URL: "redis://cache", User: "fairshare"}, "no password"},
	} {
		if err := c.connection.Check(); err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%+v: error %v, want one with %q", c.connection, err, c.fault)
		}
	}
}

func TestStoreConnectsWhenTheServerStarts(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret")
	server.Kill()
	store, err := Connect(Connection{URL: server.URL(), Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Client(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("without a server: error %v", err)
	}
	server.Run()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client, err := store.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
		t.Error(err)
	}
}

func TestStoreReachesClusterAndSentinel(t *testing.T) {
	for _, url := range []string{redistest.StartCluster(t, 0).URL(), redistest.StartSentinels(t).URL()} {
		store, err := Connect(Connection{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		client, err := store.Wait(ctx)
		if err != nil {
			t.Fatal(url, err)
		}
		if err := client.Do(ctx, client.B().Set().Key("a").Value("b").Build()).Error(); err != nil {
			t.Error(url, err)
		}
		cancel()
		store.Close()
	}
}
