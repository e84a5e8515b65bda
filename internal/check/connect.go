package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/setup"
	"fairshare/internal/storebans"
	"fairshare/redislimit"
)

// connectTime bounds how long Connect waits for the store.
const connectTime = 5 * time.Second

// storeCommands are what the user of the store needs.
const storeCommands = "+eval +evalsha +time +del +get +set +hget +hset +hsetnx +hdel +hgetall +pexpire " +
	storebans.Rights + " " +
	"+ping +hello +auth +client +info +cluster|slots +cluster|shards"

// Connect connects to the store of the policy file: it measures round trips, counts one request under the key of
// no client, and says what is wrong. The counters of clients do not change.
func (p *Policy) Connect(ctx context.Context, w io.Writer) error {
	file := p.File
	if file.Store == nil {
		return cli.Hint(fmt.Errorf("%s: the policy has no store", file.Name),
			"store: redis://127.0.0.1:6379; docs/machines.md")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	store, err := setup.OpenStore(file)
	if err != nil {
		return err
	}
	defer store.Close()
	client, err := store.Wait(ctx)
	if err != nil {
		return cli.Hint(err,
			"is the server running, and do user and password_file fit? The user needs: "+acl(file.Store.Name, file.Store.User))
	}
	trips := make([]time.Duration, 21)
	for i := range trips {
		began := time.Now()
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			return fmt.Errorf("store: PING: %w", err)
		}
		trips[i] = time.Since(began)
	}
	slices.Sort(trips)
	median := trips[len(trips)/2]
	fmt.Fprintf(w, "store: %s answers; a round trip takes %.3g ms\n", store.Address(), milliseconds(median))
	if median > file.Store.TheWait()/4 {
		fmt.Fprintf(w, "warning: store: wait: %v is short for such round trips: some requests would be decided without "+
			"the store\n", file.Store.TheWait())
	}
	info, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		fmt.Fprintf(w, "warning: store: INFO: %v: its version and eviction policy are unknown\n", err)
	}
	describeServer(w, info)

	limits := file.Policy.Limits()
	options := setup.GroupOptions(file, store, func(redislimit.Event) {})
	options.Look = true
	limiter, err := redislimit.Open(ctx, limits, options)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer limiter.Close(ctx)
	if err := takeOnce(ctx, limiter, limits); err != nil {
		cancel() // otherwise Close waits for the count
		return cli.Hint(fmt.Errorf("store: %w", err), "the user needs: "+acl(file.Store.Name, file.Store.User))
	}
	if err := storebans.Try(ctx, store, file.Store.Name); err != nil {
		return cli.Hint(fmt.Errorf("store: bans: %w", err), "the user needs: "+acl(file.Store.Name, file.Store.User))
	}
	members := limiter.Status().Members
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, m.Name)
	}
	switch len(names) {
	case 0:
		fmt.Fprintln(w, "store: the scripts run; no server counts there now")
	default:
		fmt.Fprintf(w, "store: the scripts run; servers that count there now: %s\n", strings.Join(names, ", "))
	}
	fmt.Fprintf(w, "store: a user with the least rights: %s\n", acl(file.Store.Name, file.Store.User))
	return nil
}

// takeOnce counts a request that no client has sent, and waits until the store has it.
func takeOnce(ctx context.Context, l *redislimit.Limiter, limits []fairshare.Limit) error {
	away := func() error {
		if s := l.Status(); s.Away {
			return errors.New(s.Reason)
		}
		return nil
	}
	if err := away(); err != nil {
		return err
	}
	n := slices.IndexFunc(limits, func(l fairshare.Limit) bool { return l.Resource == fairshare.Requests && l.N > 0 })
	if n < 0 {
		return nil
	}
	take := []fairshare.Take{{Limit: n, Key: []byte("fairshare check --connect"), Cost: 1}}
	if err := cmp.Or(l.Take(ctx, time.Now(), take, make([]fairshare.Tally, 1)), away()); err != nil {
		return err
	}
	if err := l.Flush(ctx); err != nil {
		return cmp.Or(away(), fmt.Errorf("a count did not arrive: %w", err))
	}
	return away()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// describeServer prints the version and the eviction policy of INFO's reply, and warns about what loses counters.
func describeServer(w io.Writer, info string) {
	values := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		values[name] = value
	}
	switch {
	case values["valkey_version"] != "":
		fmt.Fprintf(w, "store: Valkey %s\n", values["valkey_version"])
	case values["redis_version"] != "":
		fmt.Fprintf(w, "store: Redis %s\n", values["redis_version"])
	}
	switch policy := values["maxmemory_policy"]; {
	case values["maxmemory"] == "0" || policy == "" || policy == "volatile-ttl":
	case policy == "noeviction":
		fmt.Fprintln(w, "warning: store: maxmemory-policy noeviction: when the memory is full, nothing new is counted "+
			"together; volatile-ttl drops the counters that end soonest")
	default:
		fmt.Fprintf(w, "warning: store: maxmemory-policy %s may drop any counter when the memory is full; volatile-ttl "+
			"drops those that end soonest\n", policy)
	}
}

// acl returns the command that makes a user with the least rights.
func acl(group, user string) string {
	if group == "" {
		group = "default"
	}
	if user == "" {
		user = "fairshare"
	}
	return fmt.Sprintf("ACL SETUSER %s on >PASSWORD ~fs1:%s:* ~fs2:%s:* -@all %s", user, group, group, storeCommands)
}
