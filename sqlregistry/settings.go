package sqlregistry

import (
	"context"
	"net/netip"
	"os"
	"time"
)

// Settings are the facts about a server that commands on its registry need. The zero
// Settings mean that they are unknown.
type Settings struct {
	Policy         string // its file; "" for the built-in one
	Contact        string
	TrustedProxies []netip.Prefix
	IPv4Prefix     int      // bits of a client's prefix; 0: unknown
	IPv6Prefix     int      // likewise
	Bots           []string // names of bots in its table
	DryRun         bool     // it refuses no request
	Owners         []string // files with the owners of addresses, absolute
	Hosting        string   // file with the numbers of owners of the type hosting; "" for none
}

// Settings returns the last Settings of SetSettings, the zero Settings if there are
// none.
func (r *Registry) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	if err := r.setting(ctx, "server", &s); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// SetSettings writes a server's settings.
func (r *Registry) SetSettings(ctx context.Context, s Settings) error {
	return r.writing(ctx, false, func(t *tx) error { return t.setSetting("server", s) })
}

// A Holder says which client, network, owner or fleet holds most of a busy upstream.
// The zero Holder says that none does.
type Holder struct {
	Text string    // such as "network 203.0.113.0/24 holds 81 % of the upstream"
	At   time.Time // of the report; the server repeats it while it is so
}

// ReferenceKey returns the key of references: 32 random bytes, created with the
// file.
func (r *Registry) ReferenceKey(ctx context.Context) ([]byte, error) {
	var key []byte
	err := r.reading(ctx, func(l *link) error {
		if _, err := l.row(ctx, "SELECT value FROM settings WHERE name = 'reference key'", nil, &key); err != nil {
			return err
		}
		if len(key) != 32 {
			return errRow
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// Stats counts the rows of a registry.
type Stats struct {
	Clients, Bans, Stories, Labels, Overrides int64
	Bytes                                     int64 // of its files
}

// Stats counts the rows of the registry, and the bytes of its files.
func (r *Registry) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := r.reading(ctx, func(l *link) error {
		_, err := l.row(ctx,
			"SELECT clients, bans, stories, (SELECT count(*) FROM labels), (SELECT count(*) FROM words) FROM counts WHERE id = 1", nil,
			&s.Clients, &s.Bans, &s.Stories, &s.Labels, &s.Overrides)
		return err
	})
	if err != nil {
		return Stats{}, err
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(r.path + suffix); err == nil {
			s.Bytes += info.Size()
		}
	}
	return s, nil
}
