package prefixes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// A fileStamp distinguishes versions of a file without reading it.
type fileStamp struct {
	info fs.FileInfo // nil: no file was checked
}

func (a fileStamp) same(b fileStamp) bool {
	if a.info == nil || b.info == nil {
		return a.info == nil && b.info == nil
	}
	return a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime()) && os.SameFile(a.info, b.info)
}

var errChanges = errors.New("it is being written")

// load reads a file of at most that many bytes.
func load(name string, most int) ([]byte, fileStamp, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file") // reading a pipe could block
	}
	if err != nil {
		return nil, fileStamp{}, bare(err)
	}
	if info.Size() > int64(most) {
		return nil, fileStamp{info}, errSize(most)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fileStamp{}, bare(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, fileStamp{}, bare(err)
	}
	if len(data) > most {
		return nil, fileStamp{info}, errSize(most)
	}
	if after, err := f.Stat(); err != nil || !(fileStamp{after}).same(fileStamp{info}) {
		return nil, fileStamp{}, errChanges
	}
	return data, fileStamp{info}, nil
}

// bare removes the path, because messages already name it.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// readFile reads a file and puts it into use.
func (k *Keeper) readFile(s *source, now time.Time) error {
	data, stamp, err := load(s.File, k.options.MaxSize)
	s.file, s.seen = stamp, stamp
	if err != nil {
		return err
	}
	if age := now.Sub(stamp.info.ModTime()); age >= 0 && age < pollEvery {
		s.file = fileStamp{} // a change within the same clock tick has the same stamp: read it again
	}
	prefixes, err := Parse(data)
	if err != nil {
		return err
	}
	return k.take(s, Update{Name: s.Name, Prefixes: prefixes, At: stamp.info.ModTime()}, data)
}

// Reload reads all files now. For a missing or broken file the old version stays in use, and the
// error names the file. Unlike the periodic check, Reload lets a list become empty.
func (k *Keeper) Reload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	var errs []error
	for _, s := range k.sources {
		if s.File == "" {
			continue
		}
		if err := k.readFile(s, now); err != nil {
			errs = append(errs, k.named(s, fmt.Errorf("file %s: %w; %s", s.File, err, k.stays(s))))
			continue
		}
		k.over(s, "file", s.File+" can be read again")
	}
	return errors.Join(errs...)
}

// poll checks the files periodically.
func (k *Keeper) poll(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, s := range k.sources {
				if s.File != "" {
					k.check(s, now)
				}
			}
		}
	}
}

// check reads a changed file after it was the same in two checks, because writing it may take some
// time.
func (k *Keeper) check(s *source, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(s.File)
	if err != nil {
		s.file, s.seen = fileStamp{}, fileStamp{}
		k.trouble(s, problem{kind: "file", text: fmt.Sprintf("file %s: %v; %s", s.File, bare(err), k.stays(s))})
		return
	}
	stamp := fileStamp{info}
	if stamp.same(s.file) {
		s.seen = stamp
		return
	}
	if !stamp.same(s.seen) {
		s.seen = stamp
		return
	}
	before := s.sum
	data, read, err := load(s.File, k.options.MaxSize)
	if errors.Is(err, errChanges) {
		s.seen = fileStamp{}
		return
	}
	s.file = stamp // read once, even if broken
	if err == nil {
		s.file = read
		prefixes, fault := Parse(data)
		err = fault
		if err == nil && len(prefixes) == 0 && s.prefixes > 0 {
			err = errors.New("it contains no address now (to empty it on purpose, reload the policy)")
		}
		if err == nil {
			err = k.take(s, Update{Name: s.Name, Prefixes: prefixes, At: read.info.ModTime()}, data)
		}
	}
	if err != nil {
		k.trouble(s, problem{kind: "file", text: fmt.Sprintf("file %s: %v; %s", s.File, err, k.stays(s))})
		return
	}
	if len(s.problems) == 0 && s.sum != before {
		k.log(s, fmt.Sprintf("file %s was read again: %s", s.File, count(s.prefixes)))
	}
	k.over(s, "file", "file "+s.File+" can be read again")
}
