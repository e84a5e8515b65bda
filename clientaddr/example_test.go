package clientaddr_test

import (
	"fmt"
	"net/http"

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
