package botauth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// DirectoryPath is where an agent publishes its keys.
const DirectoryPath = "/.well-known/http-message-signatures-directory"

// Bounds of a key directory.
const (
	maxDirectory = 64 << 10 // bytes
	maxKeys      = 64
)

// TestKey is the thumbprint of the key of RFC 9421, appendix B.1.4. Anybody can sign
// with it: its private part is published.
const TestKey = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"

// A Key is a public key of an agent.
type Key struct {
	ID        string            // the thumbprint (RFC 7638), which signatures name as keyid
	Public    ed25519.PublicKey // 32 bytes
	NotBefore int64             // Unix seconds; 0 means no bound
	Expires   int64             // Unix seconds; 0 means no bound
}

// ParseDirectory reads a key directory, a JWKS (RFC 7517) of at most 64 KiB and 64
// keys. Keys that are not for signatures with Ed25519 are left out. A directory without
// keys is valid: the agent has withdrawn them.
func ParseDirectory(data []byte) ([]Key, error) {
	if len(data) > maxDirectory {
		return nil, fmt.Errorf("the key directory is over %d KiB", maxDirectory>>10)
	}
	var file struct {
		Keys *[]struct {
			Type  string   `json:"kty"`
			Curve string   `json:"crv"`
			X     string   `json:"x"`
			Use   string   `json:"use"`
			Alg   string   `json:"alg"`
			From  *float64 `json:"nbf"`
			Until *float64 `json:"exp"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errors.New("it is not a key directory: the JSON is not valid, or has values of other types")
	}
	if file.Keys == nil {
		return nil, errors.New("it is not a key directory: it has no keys")
	}
	if len(*file.Keys) > maxKeys {
		return nil, fmt.Errorf("the key directory has over %d keys", maxKeys)
	}
	var keys []Key
	for _, k := range *file.Keys {
		if k.Type != "OKP" || k.Curve != "Ed25519" || k.Use != "" && k.Use != "sig" ||
			!slices.Contains([]string{"", "EdDSA", "Ed25519", "ed25519"}, k.Alg) {
			continue
		}
		public, err := base64.RawURLEncoding.Strict().DecodeString(k.X)
		if err != nil || len(public) != ed25519.PublicKeySize {
			continue
		}
		from, okFrom := seconds(k.From)
		until, okUntil := seconds(k.Until)
		if !okFrom || !okUntil {
			continue
		}
		keys = append(keys, Key{ID: Thumbprint(public), Public: public, NotBefore: from, Expires: until})
	}
	return keys, nil
}

// seconds reads a time of a key in Unix seconds, or in milliseconds as some directories
// have it.
func seconds(t *float64) (int64, bool) {
	switch {
	case t == nil:
		return 0, true
	case !(*t > 0 && *t < 1e15):
		return 0, false
	case *t > 1e11:
		return int64(*t / 1000), true
	}
	return max(int64(*t), 1), true
}

// Thumbprint returns the thumbprint of an Ed25519 key (RFC 7638, RFC 8037 appendix A.3)
// in base64url.
func Thumbprint(public ed25519.PublicKey) string {
	x := base64.RawURLEncoding.EncodeToString(public)
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// A keySet holds the keys of one version of a directory. It is immutable.
type keySet struct {
	keys map[string]*Key
	at   int64 // Unix seconds at which it was fetched; 0 for a file
}

func newKeySet(keys []Key, at int64) *keySet {
	set := &keySet{keys: make(map[string]*Key, len(keys)), at: at}
	for i := range keys {
		set.keys[keys[i].ID] = &keys[i]
	}
	return set
}
