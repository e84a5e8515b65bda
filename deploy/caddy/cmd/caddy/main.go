// Command caddy is Caddy with its standard modules and fairshare.
package main

import (
	_ "fairshare/deploy/caddy"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
