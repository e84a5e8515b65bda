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
	fmt.Println(r.Resolve("198.51.100.7:51234", header).Addr) // from anybody
	fmt.Println(r.Resolve("127.0.0.1:51234", nil).Proxy)      // nginx did not say for whom
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
	// nginx has to be told: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
}

func ExampleWatch() {
	r, err := clientaddr.New(clientaddr.Config{}) // nobody is trusted
	if err != nil {
		fmt.Println(err)
		return
	}
	watch := clientaddr.NewWatch()
	suspect := false
	for i := range 100 {
		header := http.Header{"X-Forwarded-For": {fmt.Sprintf("192.0.2.%d", i)}}
		suspect = watch.Look(r, r.Resolve("127.0.0.1:51234", header), header)
	}
	fmt.Println("suspected:", suspect)
	for _, text := range watch.Lines(time.Now(), r) {
		_, lines, _ := strings.Cut(text, "\n")
		fmt.Println(lines)
	}
	// Output:
	// suspected: true
	// clients:
	//   trusted_proxies: [127.0.0.1]
	//   header: X-Forwarded-For
}
