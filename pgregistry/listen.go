package pgregistry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	notifyGap   = 50 * time.Millisecond // at most 20 notifications a second: each serializes all commits
	firstRetry  = time.Second           // of listen; doubled for each other
	longRetry   = 30 * time.Second
	listenCheck = time.Minute // a connection without notifications is tested
)

// channel is the name of the notifications.
func (r *Registry) channel() string { return "fairshare_" + r.o.Schema }

// announce has other servers read the changes.
func (r *Registry) announce() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// notify sends notifications, in transactions of their own: a commit with a notification
// waits for all others. One that fails is not repeated, since servers also read the
// changes each second.
func (r *Registry) notify() {
	for {
		select {
		case <-r.closing.Done():
			return
		case <-r.changed:
		}
		ctx, cancel := context.WithTimeout(r.closing, connectTime)
		_, _ = r.pool.Exec(ctx, "SELECT pg_notify($1, '')", r.channel())
		cancel()
		select {
		case <-r.closing.Done():
			return
		case <-time.After(notifyGap):
		}
	}
}

// Woken returns a channel that receives a value when Changes has something new, if
// Options.Listen was set. It may miss something: also call Changes each second.
func (r *Registry) Woken() <-chan struct{} { return r.woken }

// listen waits for notifications on a connection of its own, until the registry is closed.
func (r *Registry) listen(c *pgxpool.Config) {
	retry, reported := firstRetry, false
	for r.closing.Err() == nil {
		heard, err := r.listenOnce(c)
		if r.closing.Err() != nil {
			return
		}
		if heard {
			retry, reported = firstRetry, false
		}
		if !reported && r.answers() { // else the calls of the registry report it
			r.o.Log(fmt.Sprintf("PostgreSQL registry %s: notifications: %s; changes are read each second meanwhile", r.where,
				reason(err)))
			reported = true
		}
		select {
		case <-r.closing.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, longRetry)
	}
}

// answers reports whether the database can be read.
func (r *Registry) answers() bool {
	ctx, cancel := context.WithTimeout(r.closing, connectTime)
	defer cancel()
	var one int
	return r.pool.QueryRow(ctx, "SELECT 1").Scan(&one) == nil
}

// listenOnce listens until the connection fails. heard reports that it began to listen.
func (r *Registry) listenOnce(c *pgxpool.Config) (heard bool, err error) {
	connecting, cancel := context.WithTimeout(r.closing, 2*connectTime)
	defer cancel()
	config := c.ConnConfig.Copy()
	if err := c.BeforeConnect(connecting, config); err != nil {
		return false, err
	}
	conn, err := pgx.ConnectConfig(connecting, config)
	if err != nil {
		return false, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(connecting, "LISTEN "+pgx.Identifier{r.channel()}.Sanitize()); err != nil {
		return false, err
	}
	for {
		select {
		case r.woken <- struct{}{}: // also at the start: something may have been missed
		default:
		}
		for waiting := true; waiting; {
			ctx, cancel := context.WithTimeout(r.closing, listenCheck)
			_, err := conn.WaitForNotification(ctx)
			expired := ctx.Err() != nil
			cancel()
			switch {
			case err == nil:
				waiting = false
			case !expired || r.closing.Err() != nil || conn.IsClosed():
				return true, err
			default:
				check, cancel := context.WithTimeout(r.closing, connectTime)
				err := conn.Ping(check)
				cancel()
				if err != nil {
					return true, err
				}
			}
		}
	}
}
