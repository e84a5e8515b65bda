package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/policyfile"
	"fairshare/redislimit"
)

// StorePasswordEnv is the environment variable with the password of a store, if the policy names no file.
const StorePasswordEnv = "FAIRSHARE_STORE_PASSWORD"

// OpenStore begins to connect to the store that a policy file names. It does not wait for the store.
// file.Store must not be nil.
func OpenStore(file *policyfile.File) (*redislimit.Store, error) {
	s := file.Store
	password, err := storePassword(file)
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

// storePassword returns the first line of the file with the password or, without one, the value of StorePasswordEnv.
func storePassword(file *policyfile.File) (string, error) {
	if file.Store.PasswordFile == "" {
		return os.Getenv(StorePasswordEnv), nil
	}
	path := credential(file, file.Store.PasswordFile)
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", cli.Hint(fmt.Errorf("%s: the first line is empty", path), "write the password into the first line")
	}
	return line, nil
}

// GroupOptions returns the options of the limiter that counts in the store of a policy file.
func GroupOptions(file *policyfile.File, store *redislimit.Store, report func(redislimit.Event)) redislimit.Options {
	s := file.Store
	away := map[string]redislimit.Away{"whole": redislimit.AwayWhole, "open": redislimit.AwayOpen}[s.Away]
	return redislimit.Options{Store: store, Name: s.Name, Slack: s.Slack, Wait: s.TheWait(), Away: away,
		Memory: file.Memory, Member: memberName(), Policy: PolicyDigest(&file.Policy), Report: report}
}

// memberName names this program for people: the host and the process.
func memberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
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
