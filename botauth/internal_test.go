package botauth

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseDirectory(t *testing.T) {
	const good = `{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"`
	for _, c := range []struct {
		text string
		keys int
		ok   bool
	}{
		{`{"keys":[` + good + `}]}`, 1, true},
		{`{"keys":[` + good + `,"kid":"x","use":"sig","alg":"EdDSA","nbf":1712793600,"exp":1715385600}],"purpose":"ai"}`, 1, true},
		{`{"keys":[` + good + `,"nbf":1743465600000}]}`, 1, true},
		{`{"keys":[]}`, 0, true},
		{`{"keys":[` + good + `,"use":"enc"}]}`, 0, true},
		{`{"keys":[` + good + `,"exp":-1}]}`, 0, true},
		{`{"keys":[` + good + `,"exp":1e300}]}`, 0, true},
		{`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},` + good + `}]}`, 1, true},
		{`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"short"},{"kty":"OKP","crv":"X25519","x":"a"}]}`, 0, true},
		{`{"keys":{}}`, 0, false},
		{`{"members":[]}`, 0, false},
		{`{"keys":[1]}`, 0, false},
		{`[]`, 0, false},
		{``, 0, false},
		{`{"keys":[` + strings.Repeat(good+`},`, 64) + good + `}]}`, 0, false},
		{strings.Repeat(" ", 64<<10) + `{"keys":[]}`, 0, false},
	} {
		keys, err := ParseDirectory([]byte(c.text))
		if len(keys) != c.keys || (err == nil) != c.ok {
			t.Errorf("%.120s: %d keys, %v", c.text, len(keys), err)
		}
		for _, k := range keys {
			if k.ID != TestKey {
				t.Errorf("thumbprint %s", k.ID)
			}
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for addr, want := range map[string]bool{
		"1.1.1.1": true, "104.18.0.1": true, "2606:4700::1111": true, "::ffff:1.1.1.1": true,
		"127.0.0.1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false, "192.0.2.1": false,
		"198.18.0.1": false, "240.0.0.1": false, "::1": false, "::": false, "fe80::1": false, "fc00::1": false,
		"fd00::1": false, "ff02::1": false, "::ffff:127.0.0.1": false,
		"::ffff:10.0.0.1": false, "64:ff9b::7f00:1": false,
		"2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "fec0::1": false,
	} {
		if got := isPublic(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if isPublic(netip.Addr{}) {
		t.Error("no address")
	}
}

// A usedModel forgets no signature.
type usedModel map[string]struct {
	addr netip.Addr
	at   int64
}

// A signature is fresh if the model has never seen it, and replayed if it was used less
// than replayWindow before.
func TestReplaysLikeModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, model, now := newReplays(), usedModel{}, int64(1_800_000_000)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, replayWindow/4).Draw(t, "pause")
			s := &signature{agent: "agent.example", keyID: "k", value: []byte{0}}
			n := rapid.IntRange(0, 20).Draw(t, "signature")
			name := fmt.Sprint(n)
			if n%2 == 0 {
				s.nonce = name
			} else {
				s.value = []byte(name)
			}
			addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 2).Draw(t, "addr"))})
			id, user := p.id(s, addr)
			got := p.take(s, id, user, now)
			used, known := model[name]
			switch again := known && (s.nonce != "" || used.addr != addr); {
			case !again && got != fresh:
				t.Fatalf("%s is not fresh", name)
			case again && now-used.at < replayWindow && got != replayed:
				t.Fatalf("%s is used again after %d s", name, now-used.at)
			}
			if got == fresh {
				model[name] = struct {
					addr netip.Addr
					at   int64
				}{addr, now}
			}
		}
	})
}

// The memory of used signatures is bounded for each agent, and one agent that uses all of
// its own leaves room for others.
func TestUsedSignaturesAreBounded(t *testing.T) {
	p := newReplays()
	take := func(agent string, i int, now int64) use {
		s := &signature{agent: agent, nonce: fmt.Sprint(i)}
		id, user := p.id(s, netip.Addr{})
		return p.take(s, id, user, now)
	}
	for i := range maxUsedOfAgent {
		if take("a", i, 1e9) != fresh {
			t.Fatalf("signature %d", i)
		}
	}
	if take("a", -1, 1e9) != noRoom || take("a", 0, 1e9) != replayed || take("b", 0, 1e9) != fresh {
		t.Error("the bound does not hold for one agent alone")
	}
	if take("a", -1, 1e9+replayWindow) != fresh {
		t.Error("there is no room again")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`sig1=("@authority" "signature-agent";key="sig1");created=1;keyid="k";expires=2;tag="web-bot-auth"`,
		`sig1=:AAAA:`, `sig1="https://agent.example"`, "/a?b", "shop.example")
	f.Add(`sig1=("@target-uri" "signature-agent");created=1;keyid="k";expires=2;nonce="n";tag="web-bot-auth"`,
		"sig1=:"+strings.Repeat("A", 86)+"==:", `"https://agent.example"`, "*", "shop.example:443")
	f.Add(`a=("@query" "date");tag="web-bot-auth", b;tag="web-bot-auth"`, `a=1`, `a;type="jwks_uri"`, "", "")
	f.Fuzz(func(t *testing.T, input, value, agent, target, host string) {
		r := &Request{Method: "GET", Host: host, Target: target, Header: map[string][]string{
			"Signature-Input": {input}, "Signature": {value}, "Signature-Agent": {agent}, "Date": {value}}}
		s, name, err := parse(r, func(agent string) bool { return agent != "" }, always)
		if err != nil {
			return
		}
		if name == "" || s.agent != name || len(s.value) != 64 || s.keyID == "" || len(s.covered) > maxComponents {
			t.Errorf("%+v", s)
		}
		base, err := s.base(r, "https")
		if err != nil {
			return
		}
		if lines := strings.Count(base, "\n"); lines != len(s.covered) {
			t.Errorf("%d lines for %d components: %q", lines, len(s.covered), base)
		}
		again, _, err := parse(r, func(agent string) bool { return agent != "" }, always)
		if err != nil || again.params != s.params {
			t.Errorf("parsed twice: %v", err)
		}
	})
}

func FuzzDirectory(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","exp":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := ParseDirectory(data)
		if err != nil && keys != nil || len(keys) > maxKeys {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if len(k.Public) != 32 || len(k.ID) != 43 || k.NotBefore < 0 || k.Expires < 0 {
				t.Errorf("%+v", k)
			}
		}
	})
}
