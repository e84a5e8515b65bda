package prefixes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fairshare/internal/durable"
)

// A copy of an answer is a file: a line of JSON that describes it, then the unchanged answer. The
// time of the file is the time of the last fetch.
const (
	copyEnding = ".copy"
	tempPrefix = ".new-"
	tempKept   = time.Hour // age at which leftovers of interrupted writes are removed
	maxHeader  = 4 << 10
)

type copyHeader struct {
	Copy    int       `json:"fairshare_copy"` // the format: 1
	URL     string    `json:"url"`            // SHA-256 of the URL, which may contain a password
	Fetched time.Time `json:"fetched"`
	Bytes   int       `json:"bytes"`
	SHA256  string    `json:"sha256"` // of the answer
	validators
}

// copyFile returns the file name for a source. Names that differ only in case, or in characters
// that a file system may not support, get different files.
func (k *Keeper) copyFile(s *source) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s.Name)
	if safe != s.Name || len(safe) > 64 {
		safe = fmt.Sprintf("%.64s-%s", safe, digest([]byte(s.Name))[:12])
	}
	return filepath.Join(k.folder, safe+copyEnding)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// readCopy uses the stored copy of a URL's answer, if there is a valid one.
func (k *Keeper) readCopy(s *source, now time.Time) {
	if k.folder == "" {
		return
	}
	file := k.copyFile(s)
	data, stamp, err := load(file, k.options.MaxSize+maxHeader)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return
	}
	var header copyHeader
	var body []byte
	if err == nil {
		header, body, err = splitCopy(data)
	}
	if err == nil && header.URL != digest([]byte(s.URL)) {
		return // the policy named another URL before
	}
	u := Update{Name: s.Name, At: header.Fetched}
	if err == nil {
		if asked := stamp.info.ModTime(); asked.After(u.At) && !asked.After(now) {
			u.At = asked
		}
		u.Prefixes, err = Parse(body)
	}
	if err == nil {
		err = k.take(s, u, body)
	}
	if err != nil {
		k.log(s, fmt.Sprintf("its copy %s is not used: %v", file, err))
		return
	}
	s.validators = header.validators
	asked := stamp.info.ModTime()
	if s.due = asked.Add(s.pause()); asked.After(now) {
		s.due = now // the clock was wrong, then or now
	}
}

var errDamaged = errors.New("it is damaged")

func splitCopy(data []byte) (header copyHeader, body []byte, err error) {
	line, body, found := bytes.Cut(data, []byte("\n"))
	if !found || json.Unmarshal(line, &header) != nil || header.Copy != 1 || header.Bytes != len(body) ||
		header.SHA256 != digest(body) {
		return copyHeader{}, nil, errDamaged
	}
	header.ETag, header.LastModified = usable(header.ETag), usable(header.LastModified)
	return header, body, nil
}

// writeCopy stores an answer atomically.
func (k *Keeper) writeCopy(s *source, body []byte, now time.Time) (err error) {
	if k.folder == "" {
		return nil
	}
	line, err := json.Marshal(copyHeader{1, digest([]byte(s.URL)), now.UTC(), len(body), digest(body), s.validators})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(k.folder, tempPrefix+"*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("%s: %w", k.folder, bare(err))
		}
	}()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), k.copyFile(s)); err != nil {
		return err
	}
	return durable.SyncFolder(k.folder)
}

// touchCopy records a fetch without a new version. It does not recreate a missing copy; the next
// answer does that.
func (k *Keeper) touchCopy(s *source, now time.Time) error {
	if k.folder == "" {
		return nil
	}
	err := os.Chtimes(k.copyFile(s), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		s.validators = validators{} // fetch the full list next time
		return nil
	}
	return err
}

// sweep removes leftovers of interrupted writes.
func (k *Keeper) sweep() {
	leftovers, _ := filepath.Glob(filepath.Join(k.folder, tempPrefix+"*"))
	for _, file := range leftovers {
		if info, err := os.Lstat(file); err == nil && time.Since(info.ModTime()) > tempKept {
			os.Remove(file)
		}
	}
}
