package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// PositionsFile is the file in the state folder that says how far each log was judged.
const PositionsFile = "watch.json"

const mostOthers = 256 // stored positions of logs that are not followed now

// positions are what PositionsFile holds. They are stored before lines are judged, so that
// no line is judged twice.
type positions struct {
	path   string // "": nothing is stored
	failed bool   // the last write failed
	log    func(string)
	last   []byte

	Version int        `json:"version"`
	Latest  time.Time  `json:"latest"` // of the lines before the positions; zero before the first
	Logs    []position `json:"logs"`
}

// readPositions reads the positions in a state folder. An unreadable file is set aside.
func readPositions(folder string, log func(string)) (*positions, error) {
	p := &positions{Version: 1, log: log}
	if folder == "" {
		return p, nil
	}
	p.path = filepath.Join(folder, PositionsFile)
	data, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := json.Unmarshal(data, p); err != nil || p.Version != 1 {
		aside := p.path + ".unusable"
		log(fmt.Sprintf("warning: %s cannot be used (%v): logs are followed from their ends; the file is now %s", p.path,
			err, aside))
		if err := os.Rename(p.path, aside); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
		p.Version, p.Latest, p.Logs = 1, time.Time{}, nil
	}
	return p, nil
}

// of returns the stored positions in files of a log.
func (p *positions) of(log string) []position {
	return slices.DeleteFunc(slices.Clone(p.Logs), func(q position) bool { return q.Log != log })
}

// store stores the positions in the files of logs. It is not synced: the crash of the machine
// may lose some seconds of it, the kill of the process loses nothing.
func (p *positions) store(latest time.Time, logs []*log) {
	if p.path == "" {
		return
	}
	all := slices.DeleteFunc(slices.Clone(p.Logs), func(q position) bool {
		return slices.ContainsFunc(logs, func(l *log) bool { return l.path == q.Log })
	})
	all = all[max(0, len(all)-mostOthers):]
	for _, l := range logs {
		if len(l.files) == 0 { // from its beginning when it appears
			all = append(all, position{Log: l.path, Head: hashOf(nil)})
		}
		for _, t := range l.files {
			if !t.done {
				all = append(all, t.position())
			}
		}
	}
	p.Latest, p.Logs = latest, all
	data, err := json.Marshal(p)
	if err == nil && string(data) == string(p.last) && !p.failed {
		return
	}
	if err == nil {
		err = os.WriteFile(p.path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(p.path+".new", p.path)
	}
	switch {
	case err != nil && !p.failed:
		p.log(fmt.Sprintf("warning: how far the logs were judged cannot be stored: %v; judging goes on, and after a kill "+
			"lines since now would be judged again", err))
	case err == nil && p.failed:
		p.log("how far the logs were judged is stored again")
	}
	p.failed, p.last = err != nil, data
}
