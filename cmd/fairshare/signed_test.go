//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/botauth/botauthtest"
)

const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"

// signedPolicy allows one bot, which signs, from any address and with
// any user agent.
func signedPolicy(upstream, keys string) string {
	return fmt.Sprintf(`
upstream: %s
hosts: [127.0.0.1]
bots: {agents: {signer.example: {bot: shopwatch, keys: %s}}}
rules:
  - {name: ours, match: {bot: shopwatch}, allow: true}
  - {name: nobody else, match: {path: /}, block: true}
`, upstream, keys)
}

// A bot is known by its signature, once for each; the site learns its name. Refusals ask
// for a signature if one would help.
func TestServeVerifiesSignatures(t *testing.T) {
	t.Parallel()
	signer, impostor := botauthtest.New("signer.example"), botauthtest.New("signer.example")
	keys := writeFile(t, "keys.json", string(botauthtest.Directory(signer)))
	s := startServe(t, signedPolicy(echoSite(t).URL, keys))
	url := "http://" + s.addr + "/"
	get := func(sign func(http.Header)) (status int, accept, body string) {
		header := http.Header{}
		if sign != nil {
			sign(header)
		}
		var pairs []string
		for name := range header {
			pairs = append(pairs, name, header.Get(name))
		}
		resp, body := requestAs(t, "GET", url, "", chrome, pairs...)
		return resp.StatusCode, resp.Header.Get("Accept-Signature"), body
	}
	now := time.Now().Add(time.Second) // not before the start, in seconds
	signed := func(signer *botauthtest.Signer) func(http.Header) {
		return func(h http.Header) { signer.Sign(h, s.addr, now) }
	}
	if status, _, body := get(signed(signer)); status != 200 || !strings.Contains(body, "[shopwatch] [verified]") {
		t.Errorf("signed: %d %s", status, body)
	}
	if status, accept, _ := get(nil); status != 403 || accept != "" {
		t.Errorf("a browser: %d, %s", status, accept)
	}
	status, accept, _ := get(signed(impostor))
	if status != 403 || !strings.Contains(accept, `tag="web-bot-auth"`) {
		t.Errorf("another key: %d, %s", status, accept)
	}
	once := http.Header{}
	signer.Sign(once, s.addr, now)
	repeat := func(h http.Header) {
		for name := range once {
			h[name] = once[name]
		}
	}
	first, _, _ := get(repeat)
	if again, accept, _ := get(repeat); first != 200 || again != 403 || accept == "" {
		t.Errorf("the same signature: %d, then %d, %s", first, again, accept)
	}
	if status, _, _ := get(func(h http.Header) { signer.Sign(h, "other.example", now) }); status != 403 {
		t.Errorf("a signature for another site: %d", status)
	}
}

// The package web-bot-auth of npm, a client of the authors of the drafts, is verified.
// FAIRSHARE_WEB_BOT_AUTH names a folder with it:
//
//	npm install --prefix /tmp/signer web-bot-auth
//	FAIRSHARE_WEB_BOT_AUTH=/tmp/signer go test -run TestWebBotAuthClient ./cmd/fairshare
func TestWebBotAuthClient(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("FAIRSHARE_WEB_BOT_AUTH")
	if folder == "" {
		t.Skip("needs the npm package web-bot-auth: FAIRSHARE_WEB_BOT_AUTH names the folder with its node_modules")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is not installed")
	}
	const public = "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs" // of RFC 9421, appendix B.1.4
	keys := writeFile(t, "keys.json", `{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "`+public+`"}]}`)
	s := startServe(t, signedPolicy(echoSite(t).URL, keys))
	script := filepath.Join(t.TempDir(), "client.cjs")
	if err := os.WriteFile(script, []byte(`
const http = require("node:http");
const { createRequire } = require("node:module");
const need = createRequire(process.argv[2] + "/x.js");
const { signatureHeaders } = need("web-bot-auth");
const { signerFromJWK } = need("web-bot-auth/crypto");
const key = {kty: "OKP", crv: "Ed25519", d: "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU", x: "`+public+`"};
const url = process.argv[3];
(async () => {
  for (const agent of ['"https://signer.example"', 'sig1="https://signer.example"']) {
    const now = new Date(Date.now() + 1000);
    const request = new Request(url, {headers: {"Signature-Agent": agent}});
    const signed = await signatureHeaders(request, await signerFromJWK(key),
      {created: now, expires: new Date(now.getTime() + 300000)});
    for (let i = 0; i < 2; i++) {
      const status = await new Promise(done => http.get(url,
        {headers: {...signed, "Signature-Agent": agent, "User-Agent": "node"}}, r => { r.resume(); done(r.statusCode); }));
      console.log(status);
    }
  }
})();
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), node, script, folder, "http://"+s.addr+"/").CombinedOutput()
	if err != nil || strings.Join(strings.Fields(string(out)), " ") != "200 403 200 403" {
		t.Errorf("%v: %s", err, out)
	}
}
