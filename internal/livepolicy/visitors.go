package livepolicy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairshare/internal/durable"
	"fairshare/internal/setup"
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
	announced  = 24 * time.Hour       // servers that share a registry know a secret so long before it signs
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
	hadOwn := p.ownSecrets
	if p.ownSecrets = opts.Secrets == nil; p.ownSecrets {
		opts.Secrets = p.rotateSecrets()
	}
	if last := p.visitors; last != nil && last.Always() == opts.Always && p.perNetwork == opts.PerNetwork {
		keep := hadOwn && opts.Secrets == nil // the last ones hold until the process ends
		if keep || last.SetSecrets(opts.Secrets) == nil {
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

// rotateSecrets returns the secrets of the state folder, with a new one if the newest is too old. With a shared
// registry they are those of all its servers. Without a folder, or if it cannot be written, it returns those that
// there are; none means a secret that ends with the process.
func (p *Policy) rotateSecrets() [][]byte {
	if p.options.Folder == "" {
		return nil
	}
	path := filepath.Join(p.options.Folder, SecretsFile)
	now := time.Now()
	secrets, err := rotateSecrets(path, now)
	if g, ok := p.state.store.(*group); ok && err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), settingsTimeout)
		defer cancel()
		var shared [][]byte
		if shared, err = g.shareSecrets(ctx, path); shared != nil {
			secrets = shared
		}
	}
	if err != nil && p.secretsErr == nil {
		p.options.Log(fmt.Sprintf("warning: secrets of visitors' cookies: %v", err))
	}
	p.secretsErr = err
	return secrets
}

// refreshSecrets rotates the secrets of the state folder when it is time, and reads those of a shared registry.
func (p *Policy) refreshSecrets() {
	if p.visitors == nil || !p.ownSecrets {
		return
	}
	if _, shared := p.state.store.(*group); !shared && time.Since(p.secretsAt) < time.Hour {
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
	lines := secretLines(data, now)
	if len(lines) > 0 {
		if age := now.Sub(madeAt(lines[0])); age < secretFor && age > -secretFor {
			return activeSecrets(lines, now)
		}
	}
	lines = append([]string{newSecret(now)}, lines...)
	if err := replaceFile(path, secretText(lines)); err != nil {
		secrets, _ := secretsOf(data)
		return secrets, err
	}
	return activeSecrets(lines, now)
}

// shareSecrets makes the secrets of a file and of the shared registry equal: those of the registry come first, so that
// all servers sign with the same one. It adds a new one a day before it signs: until then all servers have read it.
// While the registry is away it returns nil.
func (g *group) shareSecrets(ctx context.Context, path string) (secrets [][]byte, err error) {
	own, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for range 3 { // another server may be faster
		r := g.connection()
		if r == nil {
			return nil, nil
		}
		shared, err := r.VisitorSecrets(ctx)
		if err != nil {
			return nil, notAway(g.note(err))
		}
		now, err := r.Now(ctx) // a server whose clock is wrong must not date the secrets of all
		if err != nil {
			return nil, notAway(g.note(err))
		}
		lines := mergeSecrets(shared, own, now)
		next := secretText(lines)
		if !bytes.Equal(next, shared) {
			replaced, err := r.ReplaceVisitorSecrets(ctx, shared, next)
			if err != nil {
				return nil, notAway(g.note(err))
			}
			if !replaced {
				continue
			}
		}
		secrets, err = activeSecrets(lines, now)
		if err == nil && !bytes.Equal(next, own) {
			err = replaceFile(path, next)
		}
		return secrets, err
	}
	return nil, nil
}

// notAway returns nil for the error of a registry that is away, which is logged elsewhere.
func notAway(err error) error {
	if setup.IsAway(err) {
		return nil
	}
	return err
}

// mostSecrets bounds the lines of secrets that servers share.
const mostSecrets = 64

// mergeSecrets returns the lines of secrets that servers share, with those of one server behind them. If the newest
// is about to be too old, it adds one that signs in a day.
func mergeSecrets(shared, own []byte, now time.Time) []string {
	ahead := func(line string) bool { return madeAt(line).Sub(now) > 2*announced } // of a clock that was wrong
	lines := slices.DeleteFunc(secretLines(shared, now), ahead)
	alone := len(lines) == 0
	for _, line := range secretLines(own, now) {
		if !slices.Contains(lines, line) && len(lines) < mostSecrets && !ahead(line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return []string{newSecret(now)}
	}
	if !alone && now.Sub(madeAt(lines[0])) > secretFor-announced {
		lines = append([]string{newSecret(now.Add(announced))}, lines[:min(len(lines), mostSecrets-1)]...)
	}
	return lines
}

// secretLines returns the lines of secrets that are not too old.
func secretLines(text []byte, now time.Time) (lines []string) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if made := madeAt(line); line != "" && (made.IsZero() || now.Sub(made) < secretKept) {
			lines = append(lines, line)
		}
	}
	return lines
}

// madeAt returns the time from which the secret of a line signs; zero if the line has none.
func madeAt(line string) time.Time {
	text, _, _ := strings.Cut(line, " ")
	made, _ := time.Parse(time.RFC3339, text)
	return made
}

// newSecret returns a line with a new secret that signs from a time on.
func newSecret(from time.Time) string {
	secret := make([]byte, 32)
	rand.Read(secret) // it never fails
	return from.UTC().Format(time.RFC3339) + " " + base64.RawStdEncoding.EncodeToString(secret)
}

func secretText(lines []string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

// activeSecrets returns the secrets of lines. The first one, which signs, is that of the first line whose time
// has come.
func activeSecrets(lines []string, now time.Time) ([][]byte, error) {
	lines = slices.Clone(lines)
	if n := slices.IndexFunc(lines, func(line string) bool { return !madeAt(line).After(now) }); n > 0 {
		first := lines[n]
		lines = slices.Insert(slices.Delete(lines, n, n+1), 0, first)
	}
	return secretsOf([]byte(strings.Join(lines, "\n")))
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
