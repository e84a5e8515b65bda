package sqlregistry

import (
	"context"
	"database/sql"
	"fmt"

	"fairshare"
)

// Say sets an operator's word about a client, in place of an earlier one.
func (r *Registry) Say(ctx context.Context, said fairshare.Said) error {
	k, err := keyOf(said.Client)
	if err != nil {
		return err
	}
	if said.Action != fairshare.Allow && said.Action != fairshare.Refuse && said.Action != fairshare.Block {
		return fmt.Errorf("word about %s: %v is %w", said.Client, said.Action, errArgument)
	}
	return r.writing(ctx, true, func(t *tx) error {
		t.words = true
		_, err := t.exec("INSERT INTO words (client, action, since, until, reason) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET action = excluded.action, since = excluded.since, until = excluded.until, reason = excluded.reason",
			k, int64(said.Action), nanoseconds(said.Since), nanoseconds(said.Until), said.Reason)
		if err != nil {
			return err
		}
		return t.keep(k, keptByOperator)
	})
}

// Unsay takes the word about a client back and returns what it was, nil when
// there was none.
func (r *Registry) Unsay(ctx context.Context, id fairshare.ClientID) (was *fairshare.Said, err error) {
	k, err := keyOf(id)
	if err != nil {
		return nil, err
	}
	err = r.writing(ctx, true, func(t *tx) error {
		if was, err = wordOf(t.ctx, t.link, k); err != nil || was == nil {
			return err
		}
		t.words = true
		if _, err := t.exec("DELETE FROM words WHERE client = ?", k); err != nil {
			return err
		}
		return t.unkeep(k)
	})
	return was, err
}

// Label sets a label.
func (r *Registry) Label(ctx context.Context, label fairshare.Label) error {
	k, err := keyOf(label.Client)
	if err != nil {
		return err
	}
	if label.Name == "" {
		return fmt.Errorf("label of %s without a name: %w", label.Client, errArgument)
	}
	return r.writing(ctx, true, func(t *tx) error {
		n, err := t.exec("INSERT INTO labels (client, name) VALUES (?, ?) ON CONFLICT DO NOTHING", k, label.Name)
		if err != nil || n == 0 {
			return err
		}
		t.words = true
		return t.keep(k, keptByOperator)
	})
}

// Unlabel removes a label of a client, "" all of them, and returns those that
// it had.
func (r *Registry) Unlabel(ctx context.Context, id fairshare.ClientID, name string) (removed []string, err error) {
	k, err := keyOf(id)
	if err != nil {
		return nil, err
	}
	err = r.writing(ctx, true, func(t *tx) error {
		all, err := labelsOf(t.ctx, t.link, k)
		if err != nil {
			return err
		}
		removed = nil
		for _, l := range all {
			if name == "" || l == name {
				removed = append(removed, l)
			}
		}
		if removed == nil {
			return nil
		}
		t.words = true
		if _, err := t.exec("DELETE FROM labels WHERE client = ?1 AND ?2 IN ('', name)", k, name); err != nil {
			return err
		}
		return t.unkeep(k)
	})
	return removed, err
}

// Note sets the note on a client; "" removes it.
func (r *Registry) Note(ctx context.Context, id fairshare.ClientID, text string) error {
	k, err := keyOf(id)
	if err != nil {
		return err
	}
	return r.writing(ctx, true, func(t *tx) error {
		if text == "" {
			n, err := t.exec("DELETE FROM notes WHERE client = ?", k)
			if err != nil || n == 0 {
				return err
			}
			return t.unkeep(k)
		}
		if _, err := t.exec("INSERT INTO notes (client, text) VALUES (?, ?) ON CONFLICT DO UPDATE SET text = excluded.text", k, text); err != nil {
			return err
		}
		return t.keep(k, keptByOperator)
	})
}

// Words returns all words and labels of operators, in the order of clients. A
// word may have ended.
func (r *Registry) Words(ctx context.Context) (words []fairshare.Said, labels []fairshare.Label, err error) {
	err = r.reading(ctx, func(l *link) error {
		words, labels = nil, nil
		err := l.rows(ctx, "SELECT client, action, since, until, reason FROM words ORDER BY client", nil, func(rows *sql.Rows) error {
			said, err := scanWord(rows)
			words = append(words, said)
			return err
		})
		if err != nil {
			return err
		}
		return l.rows(ctx, "SELECT client, name FROM labels ORDER BY client, name", nil, func(rows *sql.Rows) error {
			var k key
			var name string
			if err := rows.Scan(&k, &name); err != nil {
				return err
			}
			id, err := idOf(k)
			labels = append(labels, fairshare.Label{Client: id, Name: name})
			return err
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return words, labels, nil
}

func scanWord(rows *sql.Rows) (said fairshare.Said, err error) {
	var k key
	var since, until int64
	if err = rows.Scan(&k, &said.Action, &since, &until, &said.Reason); err != nil {
		return said, err
	}
	if said.Action != fairshare.Allow && said.Action != fairshare.Refuse && said.Action != fairshare.Block {
		return said, errRow
	}
	said.Client, err = idOf(k)
	said.Since, said.Until = timeOf(since), timeOf(until)
	return said, err
}

// wordOf returns the word about just one client, nil if there is none.
func wordOf(ctx context.Context, l *link, k key) (word *fairshare.Said, err error) {
	err = l.rows(ctx, "SELECT client, action, since, until, reason FROM words WHERE client = ?", []any{k}, func(rows *sql.Rows) error {
		said, err := scanWord(rows)
		word = &said
		return err
	})
	return word, err
}

// labelsOf returns the labels of just one client.
func labelsOf(ctx context.Context, l *link, k key) (labels []string, err error) {
	err = l.rows(ctx, "SELECT name FROM labels WHERE client = ? ORDER BY name", []any{k}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		labels = append(labels, name)
		return err
	})
	return labels, err
}
