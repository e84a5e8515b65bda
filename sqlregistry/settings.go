package sqlregistry

import (
	"context"
	"os"

	"fairshare/registry"
	"fairshare/registry/key"
)

// Settings returns the last Settings of SetSettings, the zero Settings if there are
// none.
func (r *Registry) Settings(ctx context.Context) (registry.Settings, error) {
	var s registry.Settings
	if err := r.setting(ctx, "server", &s); err != nil {
		return registry.Settings{}, err
	}
	return s, nil
}

// SetSettings writes a server's settings.
func (r *Registry) SetSettings(ctx context.Context, s registry.Settings) error {
	return r.writing(ctx, false, func(t *tx) error { return t.setSetting("server", s) })
}

// ReferenceKey returns the key of references: 32 random bytes, created with the
// file.
func (r *Registry) ReferenceKey(ctx context.Context) ([]byte, error) {
	var secret []byte
	err := r.reading(ctx, func(l *link) error {
		if _, err := l.row(ctx, "SELECT value FROM settings WHERE name = 'reference key'", nil, &secret); err != nil {
			return err
		}
		if len(secret) != 32 {
			return key.ErrRow
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return secret, nil
}

// Stats counts the rows of the registry, and the bytes of its files.
func (r *Registry) Stats(ctx context.Context) (registry.Stats, error) {
	var s registry.Stats
	err := r.reading(ctx, func(l *link) error {
		_, err := l.row(ctx,
			"SELECT clients, bans, stories, (SELECT count(*) FROM labels), (SELECT count(*) FROM words) FROM counts WHERE id = 1", nil,
			&s.Clients, &s.Bans, &s.Stories, &s.Labels, &s.Overrides)
		return err
	})
	if err != nil {
		return registry.Stats{}, err
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(r.path + suffix); err == nil {
			s.Bytes += info.Size()
		}
	}
	return s, nil
}
