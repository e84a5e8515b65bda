package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/policyfile"
	"fairshare/redislimit"
)

// Where the password of a store comes from if the policy names no file.
const (
	StorePasswordEnv        = "FAIRSHARE_STORE_PASSWORD"
	StorePasswordCredential = "store.password" // of systemd: LoadCredential=store.password:…
)

// OpenStore begins to connect to the store that a policy file names. It does not wait for the store.
// file.Store must not be nil.
func OpenStore(file *policyfile.File) (*redislimit.Store, error) {
	s := file.Store
	password, err := readSecret(file.ResolvePath(s.PasswordFile), StorePasswordEnv, StorePasswordCredential)
	if err != nil {
		return nil, fmt.Errorf("store: password_file: %w", err)
	}
	store, err := redislimit.Connect(redislimit.Connection{URL: s.URL, User: s.User, Password: password,
		CA: file.ResolvePath(s.CA), Cert: file.ResolvePath(s.Cert), Key: file.ResolvePath(s.Key)})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return store, nil
}

// readSecret returns the first line of a file. Without a file it returns the value of an environment
// variable, or the first line of a credential of systemd; "" if there is none.
func readSecret(file, env, credential string) (string, error) {
	optional := file == ""
	if optional {
		if value := os.Getenv(env); value != "" {
			return value, nil
		}
		folder := os.Getenv("CREDENTIALS_DIRECTORY")
		if folder == "" {
			return "", nil
		}
		file = filepath.Join(folder, credential)
	}
	content, err := os.ReadFile(file)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", cli.Hint(fmt.Errorf("%s: the first line is empty", file), "write the password into the first line")
	}
	return line, nil
}

// GroupOptions returns the options of the limiter that counts in the store of a policy file.
func GroupOptions(file *policyfile.File, store *redislimit.Store, report func(redislimit.Event)) redislimit.Options {
	s := file.Store
	away := map[string]redislimit.Away{"whole": redislimit.AwayWhole, "open": redislimit.AwayOpen}[s.Away]
	return redislimit.Options{Store: store, Name: s.Name, Slack: s.Slack, Wait: s.TheWait(), Away: away,
		Memory: file.Memory, Policy: PolicyDigest(&file.Policy), Report: report}
}

// PolicyDigest returns a short name of what a policy counts. Programs with the same digest count the same.
func PolicyDigest(policy *fairshare.Policy) string {
	h := sha256.New()
	for _, l := range policy.Limits() {
		newcomers := int64(-1)
		if l.Newcomers != nil {
			newcomers = l.Newcomers.N
		}
		fmt.Fprintf(h, "%q %v %v %d %d %v %v %v %v %v %v %d %v %v\n", l.Name, l.By, l.Resource, l.N, l.Burst, l.Window,
			l.Algorithm, l.Statuses, l.When, l.Count, l.Distinct, newcomers, l.Exact, l.EachMember)
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}
