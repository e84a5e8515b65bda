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

// A fileStamp tells versions of a file apart without reading it.
type fileStamp struct {
	info fs.FileInfo // nil: none was looked at
}

func (a fileStamp) same(b fileStamp) bool {
	if a.info == nil || b.info == nil {
		return a.info == nil && b.info == nil
	}
	return a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime()) && os.SameFile(a.info, b.info)
}

var errChanges = errors.New("it is being written")

// load reads a file of at most so many bytes.
func load(name string, most int) ([]byte, fileStamp, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file") // a pipe would hold us up
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

// bare drops the path, which messages name already.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// readFile reads a file and takes it over.
func (k *Keeper) readFile(s *source, now time.Time) error {
	data, stamp, err := load(s.File, k.options.MaxSize)
	s.file, s.seen = stamp, stamp
	if err != nil {
		return err
	}
	if age := now.Sub(stamp.info.ModTime()); age >= 0 && age < pollEvery {
		s.file = fileStamp{} // a change within the same tick would look the same: read it once more
	}
	prefixes, err := Parse(data)
	if err != nil {
		return err
	}
	return k.take(s, Update{Name: s.Name, Prefixes: prefixes, At: stamp.info.ModTime()}, data)
}

// Reload reads all files now. A file that is missing or broken keeps its
// version in use, and is part of the error. Other than a look in passing, it
// lets a list become empty.
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
		k.over(s, "file", s.File+" is well again")
	}
	return errors.Join(errs...)
}

// poll looks at the files every so often.
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
					k.look(s, now)
				}
			}
		}
	}
}

// look reads a file that has changed, once it has stayed the same for two
// looks: whoever writes it may need some time.
func (k *Keeper) look(s *source, now time.Time) {
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
	s.file = stamp // read once, be it good or broken
	if err == nil {
		s.file = read
		prefixes, fault := Parse(data)
		err = fault
		if err == nil && len(prefixes) == 0 && s.prefixes > 0 {
			err = errors.New("it holds no address now (to empty it on purpose, have the policy read anew)")
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
		k.log(s, fmt.Sprintf("file %s was read anew: %s", s.File, count(s.prefixes)))
	}
	k.over(s, "file", "file "+s.File+" is well again")
}
