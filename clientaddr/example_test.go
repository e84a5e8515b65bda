package clientaddr_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"fairshare/clientaddr"
)

func ExampleResolver_Resolve() {
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: []string{"loopback", "10.0.0.0/8"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	header := http.Header{"X-Forwarded-For": {"6.6.6.6, 192.0.2.1, 10.0.0.2"}}

	fmt.Println(r.Resolve("127.0.0.1:51234", header).Addr)    // from our own nginx
	fmt.Println(r.Resolve("198.51.100.7:51234", header).Addr) // from an untrusted peer
	fmt.Println(r.Resolve("127.0.0.1:51234", nil).Proxy)      // nginx did not name the client
	// Output:
	// 192.0.2.1
	// 198.51.100.7
	// true
}

func ExampleBehind() {
	preset, err := clientaddr.Behind("nginx")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(preset.Config.TrustedProxies, preset.Config.Header)
	fmt.Println(preset.Setup)
	// Output:
	// [loopback private unix] X-Forwarded-For
	// nginx needs this setting: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
}

func ExampleWatch() {
	r, err := clientaddr.New(clientaddr.Config{Provisional: true}) // no peer is trusted
	if err != nil {
		fmt.Println(err)
		return
	}
	watch := clientaddr.NewWatch()
	header := http.Header{"X-Forwarded-For": {"192.0.2.7"}}
	found := r.Resolve("127.0.0.1:51234", header)
	watch.Observe(r, found, header)
	fmt.Println(found.Addr, "through", found.Via)
	for _, text := range watch.Reports(time.Now(), r) {
		_, lines, _ := strings.Cut(text, "\n") // after the sentence that describes the peer
		trust, _, _ := strings.Cut(lines, "\n\n")
		fmt.Println(trust)
	}
	// Output:
	// 192.0.2.7 through 127.0.0.1
	// clients:
	//   trusted_proxies: [127.0.0.1]
	//   header: X-Forwarded-For
}
