package livepolicy

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairshare/internal/durable"
	"fairshare/policyfile"
	"fairshare/visitor"
)

// SecretsFile is the file in the state folder with the secrets that sign visitors'
// cookies. Each line has the time at which the secret was made, and the secret;
// the first line signs.
const SecretsFile = "visitors.key"

const (
	secretFor  = 30 * 24 * time.Hour  // a secret signs for so long
	secretKept = 120 * 24 * time.Hour // then it verifies until it is so old
)

// usesVisitors reports whether clients get and show visitors' cookies: where they have an effect, unless
// the policy says otherwise.
func (rt *Runtime) usesVisitors() bool {
	if v := rt.File.Visitors; v != nil {
		return v.Cookies != policyfile.CookiesNever
	}
	return rt.Share != nil || rt.File.CountsVisitors()
}

// readVisitorSecrets reads the files with secrets that the policy file names.
func (rt *Runtime) readVisitorSecrets() (err error) {
	v := rt.File.Visitors
	if v == nil {
		return nil
	}
	const hint = "openssl rand -base64 32 makes a secret"
	if v.SecretFile != "" {
		if rt.secrets, err = readSecrets(rt.File.ResolvePath(v.SecretFile)); err != nil {
			return rt.File.Fault(v.SecretFile, fmt.Errorf("secret_file: %w", err), hint)
		}
	}
	if v.MemberCookie == "" {
		return nil
	}
	secrets, err := readSecrets(rt.File.ResolvePath(v.MemberSecret))
	if err == nil {
		rt.Members, err = visitor.NewMembers(v.MemberCookie, secrets[0])
	}
	if err != nil {
		return rt.File.Fault(v.MemberSecret, fmt.Errorf("secret_file: %w", err), hint)
	}
	return nil
}

// useVisitors gives a runtime its cookies of visitors. Cookies and what is known of the networks that got
// them stay over a reload, unless the settings change.
func (p *Policy) useVisitors(rt *Runtime) {
	if !rt.usesVisitors() {
		return
	}
	opts := visitor.Options{Secrets: rt.secrets}
	if v := rt.File.Visitors; v != nil {
		opts.Always, opts.PerNetwork = v.Cookies == policyfile.CookiesAlways, v.PerNetwork
	}
	if p.ownSecrets = opts.Secrets == nil; p.ownSecrets {
		opts.Secrets = p.rotateSecrets()
	}
	if last := p.visitors; last != nil && last.Always() == opts.Always && p.perNetwork == opts.PerNetwork {
		if last.SetSecrets(opts.Secrets) == nil {
			rt.Visitors = last
			return
		}
	}
	var err error
	if rt.Visitors, err = visitor.New(opts); err != nil { // the secrets were checked when they were read
		p.options.Log(fmt.Sprintf("error: visitors get no cookies: %v", err))
		return
	}
	p.visitors, p.perNetwork = rt.Visitors, opts.PerNetwork
}

// rotateSecrets returns the secrets of the state folder, with a new one if the newest is too old. Without
// a folder, or if it cannot be written, it returns those that there are; none means a secret
// that ends with the process.
func (p *Policy) rotateSecrets() [][]byte {
	if p.options.Folder == "" {
		return nil
	}
	path := filepath.Join(p.options.Folder, SecretsFile)
	secrets, err := rotateSecrets(path, time.Now())
	if err != nil && p.secretsErr == nil {
		p.options.Log(fmt.Sprintf("warning: secrets of visitors' cookies: %v", err))
	}
	p.secretsErr = err
	return secrets
}

// refreshSecrets rotates the secrets of the state folder when it is time.
func (p *Policy) refreshSecrets() {
	if p.visitors == nil || !p.ownSecrets || time.Since(p.secretsAt) < time.Hour {
		return
	}
	p.secretsAt = time.Now()
	if secrets := p.rotateSecrets(); secrets != nil {
		p.visitors.SetSecrets(secrets) // they were checked when they were read
	}
}

// rotateSecrets reads a file of secrets, and adds a new one if the newest is older than secretFor. If the
// file cannot be written, it returns the error and the secrets that there are.
func rotateSecrets(path string, now time.Time) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		made, _, _ := strings.Cut(line, " ")
		if at, err := time.Parse(time.RFC3339, made); err != nil || now.Sub(at) < secretKept {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	newest := time.Time{}
	if len(lines) > 0 {
		made, _, _ := strings.Cut(lines[0], " ")
		newest, _ = time.Parse(time.RFC3339, made)
	}
	if age := now.Sub(newest); age < secretFor && age > -secretFor {
		return secretsOf([]byte(strings.Join(lines, "\n")))
	}
	secret := make([]byte, 32)
	rand.Read(secret) // it never fails
	line := now.UTC().Format(time.RFC3339) + " " + base64.RawStdEncoding.EncodeToString(secret)
	next := []byte(strings.Join(append([]string{line}, lines...), "\n") + "\n")
	if err := replaceFile(path, next); err != nil {
		secrets, _ := secretsOf(data)
		return secrets, err
	}
	return secretsOf(next)
}

// replaceFile replaces a file at once. Only its owner may read it.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(path))
}

// readSecrets reads a file with at least one secret.
func readSecrets(path string) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	secrets, err := secretsOf(data)
	if err == nil && len(secrets) == 0 {
		err = errors.New("the file has no secret")
	}
	return secrets, err
}

// secretsOf returns the last field of each line that is not empty and not a comment.
func secretsOf(data []byte) (secrets [][]byte, err error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		secret := words[len(words)-1]
		if len(secret) < visitor.MinSecret {
			return nil, fmt.Errorf("line %d: a secret needs at least %d characters", n, visitor.MinSecret)
		}
		secrets = append(secrets, []byte(secret))
	}
	return secrets, lines.Err()
}

// isSecure reports whether a trusted proxy has received a request by TLS.
func (rt *Runtime) isSecure(r *http.Request) bool { return rt.Clients.Secure(r.RemoteAddr, r.Header) }
