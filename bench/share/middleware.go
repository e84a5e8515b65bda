//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
	"fairshare/share"
)

// serveMiddleware is an example of a Go program with the guard and a share, which gets
// each page from the upstream.
func serveMiddleware(upstream string, capacity int) error {
	target, err := url.Parse("http://" + upstream)
	if err != nil {
		return err
	}
	policy := &fairshare.Policy{}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		return err
	}
	guard, err := fairshare.NewGuard(policy, limiter, nil)
	if err != nil {
		return err
	}
	queue := share.New(share.Options{Capacity: capacity, Ages: true, Key: guard.AppendKey,
		Client: policy.Client})
	pages := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s protects\n", l.Addr())
	return http.Serve(l, httpguard.Middleware(guard, httpguard.Options{Share: queue})(pages))
}
