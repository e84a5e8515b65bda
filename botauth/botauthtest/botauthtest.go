// Package botauthtest signs requests as bots with Web Bot Auth do, for tests of
// programs that verify signatures.
package botauthtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"fairshare/botauth"
)

// A Signer signs requests with one key of an agent. Agent and Private are needed; the
// zero values of the other fields are those of an ordinary bot.
type Signer struct {
	Agent   string // host, such as agent.example
	Private ed25519.PrivateKey

	Lifetime time.Duration // from created to expires; 0 means a minute
	NoNonce  bool
	Legacy   bool // Signature-Agent is a string, as in the first drafts
}

// New returns a signer with a new key.
func New(agent string) *Signer {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return &Signer{Agent: agent, Private: private}
}

// Public returns the public key.
func (s *Signer) Public() ed25519.PublicKey { return s.Private.Public().(ed25519.PublicKey) }

// Key returns the public key as a Verifier needs it.
func (s *Signer) Key() botauth.Key {
	return botauth.Key{ID: botauth.Thumbprint(s.Public()), Public: s.Public()}
}

// Directory returns a key directory with the public keys of signers.
func Directory(signers ...*Signer) []byte {
	type jwk struct {
		Type  string `json:"kty"`
		Curve string `json:"crv"`
		X     string `json:"x"`
	}
	keys := []jwk{}
	for _, s := range signers {
		keys = append(keys, jwk{"OKP", "Ed25519", base64.RawURLEncoding.EncodeToString(s.Public())})
	}
	data, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	return data
}

// Sign adds the headers of a signature for a host, created at a time.
func (s *Signer) Sign(header http.Header, host string, created time.Time) {
	lifetime := s.Lifetime
	if lifetime == 0 {
		lifetime = time.Minute
	}
	url := `"https://` + s.Agent + `"`
	field, component := `sig1=`+url, `"signature-agent";key="sig1"`
	if s.Legacy {
		field, component = url, `"signature-agent"`
	}
	nonce := ""
	if !s.NoNonce {
		nonce = `;nonce="` + rand.Text() + `"`
	}
	params := fmt.Sprintf(`("@authority" %s);created=%d;keyid="%s";alg="ed25519";expires=%d%s;tag="web-bot-auth"`,
		component, created.Unix(), s.Key().ID, created.Add(lifetime).Unix(), nonce)
	base := `"@authority": ` + strings.ToLower(host) + "\n" + component + ": " + url + "\n" +
		`"@signature-params": ` + params
	header.Set("Signature-Agent", field)
	header.Set("Signature-Input", "sig1="+params)
	header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(ed25519.Sign(s.Private, []byte(base)))+":")
}
