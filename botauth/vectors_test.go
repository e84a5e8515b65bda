package botauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// testPublic is the public key of RFC 9421, appendix B.1.4.
func testPublic(t testing.TB) ed25519.PublicKey {
	public, err := base64.RawURLEncoding.DecodeString("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs")
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// The signature of RFC 9421, appendix B.2.6.
func TestRFC9421Ed25519(t *testing.T) {
	r := &Request{Method: "POST", Scheme: "https", Host: "example.com", Target: "/foo?param=Value&Pet=dog",
		Header: map[string][]string{
			"Date": {"Tue, 20 Apr 2021 02:07:55 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"18"},
		}}
	input, err := httpsfv.UnmarshalDictionary([]string{`sig-b26=("date" "@method" "@path" "@authority" ` +
		`"content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`})
	if err != nil {
		t.Fatal(err)
	}
	member, _ := input.Get("sig-b26")
	list := member.(httpsfv.InnerList)
	s := &signature{}
	for _, item := range list.Items {
		c, err := parseComponent(item)
		if err != nil {
			t.Fatal(err)
		}
		s.covered = append(s.covered, c)
	}
	if s.params, err = httpsfv.Marshal(httpsfv.List{list}); err != nil {
		t.Fatal(err)
	}
	s.value, err = signatureValue([]string{
		"sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:"}, "sig-b26")
	if err != nil {
		t.Fatal(err)
	}
	if valid, err := s.check(r, testPublic(t)); !valid || err != nil {
		t.Errorf("valid: %v, %v", valid, err)
	}
	r.Method = "GET"
	if valid, err := s.check(r, testPublic(t)); valid || err != nil {
		t.Errorf("with another method: %v, %v", valid, err)
	}
}

// The Ed25519 signatures of the drafts: a Signature-Agent that is a string in the first,
// and a dictionary in the newer ones.
func TestDraftVectors(t *testing.T) {
	if got := Thumbprint(testPublic(t)); got != TestKey {
		t.Fatalf("thumbprint %s", got)
	}
	const keyID = `keyid="` + TestKey + `";alg="ed25519"`
	for _, c := range []struct {
		name, agent, input, signature string
		fault                         error // of parse
	}{
		{"string", `"https://signature-agent.test"`,
			`sig2=("@authority" "signature-agent");created=1735689600;` + keyID + `;expires=1735693200;` +
				`nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==";` +
				`tag="web-bot-auth"`,
			"sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:", nil},
		{"dictionary", `agent2="https://signature-agent.test"`,
			`sig2=("@authority" "signature-agent";key="agent2");created=1735689600;` + keyID + `;expires=4889289600;` +
				`nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";` +
				`tag="web-bot-auth"`,
			"sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:", nil},
		{"without an agent", "",
			`sig1=("@authority");created=1735689600;` + keyID + `;expires=1735693200;` +
				`nonce="mYotfW3CUjI68sbGw6oKd7kyXqPjZEtU8xFPGWFrqOAf5qC6MDe3pys3SWWCudB0MvwslHy32WXUpkR7u0lt/w==";` +
				`tag="web-bot-auth"`,
			"sig1=:+NA/cssf4Y2bQTMTkyvTGRCaVzp9quyUevdwwMtMOWhhOOZ2T1subBj0BtvdnrpDEuwSAbiTeElXDzHL3WWKCw==:", errAgent},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Request{Method: "GET", Scheme: "https", Host: "Example.com:443", Target: "/path/to/resource",
				Header: map[string][]string{"Signature-Input": {c.input}, "Signature": {c.signature}}}
			if c.agent != "" {
				r.Header["Signature-Agent"] = []string{c.agent}
			}
			s, agent, err := parse(r, func(agent string) bool { return agent == "signature-agent.test" }, always)
			if err != c.fault {
				t.Fatalf("parse: %v", err)
			}
			if err != nil {
				return
			}
			if valid, err := s.check(r, testPublic(t)); !valid || err != nil || agent != "signature-agent.test" {
				t.Errorf("valid: %v, %v, of %s", valid, err, agent)
			}
			// The same by a Verifier, which has the key and the time of the signature.
			v := NewVerifier(Options{Agents: []Agent{{Host: "signature-agent.test",
				Keys: []Key{{ID: TestKey, Public: testPublic(t)}}}}, Host: func(string) bool { return true }})
			got := v.Verify(r, netip.MustParseAddr("192.0.2.1"), time.Unix(1735689600+60, 0))
			want := Verified
			if c.name == "dictionary" { // it is for a hundred years
				want = Unproven
			}
			if got.State != want {
				t.Errorf("%+v", got)
			}
			r.Host = "other.example"
			if valid, err := s.check(r, testPublic(t)); valid || err != nil {
				t.Errorf("for another host: %v, %v", valid, err)
			}
		})
	}
}

// The signature with RSA of the drafts is not one of Ed25519.
func TestOtherAlgorithmsAreNotAccepted(t *testing.T) {
	r := &Request{Method: "GET", Host: "example.com", Target: "/", Header: map[string][]string{
		"Signature-Agent": {`"https://signature-agent.test"`},
		"Signature-Input": {`sig2=("@authority" "signature-agent");created=1735689600;` +
			`keyid="oD0HwocPBSfpNy5W3bpJeyFGY_IQ_YpqxSjQ3Yd-CLA";alg="rsa-pss-sha512";expires=1735693200;tag="web-bot-auth"`},
		"Signature": {"sig2=:" + strings.Repeat("AAAA", 85) + ":"},
	}}
	_, agent, err := parse(r, func(string) bool { return true }, always)
	if err != errAlgorithm || agent != "signature-agent.test" {
		t.Errorf("%q, %v", agent, err)
	}
}
