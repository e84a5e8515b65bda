package lookup

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Names that another resolver has confirmed are known without a look-up until they are too old.
// Those that the site does not look for, or that are too old, are not taken.
func TestLearnedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r, err := New(Options{Server: "192.0.2.53",
			Prefer: func(host string) bool { return strings.HasSuffix(host, ".bot.example") },
			query: func(context.Context, string, dnsmessage.Type) (records, error) {
				asked.Add(1)
				return records{}, errors.New("no answer")
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { r.Close(); synctest.Wait() }()
		addr := netip.MustParseAddr
		names := []string{"a.bot.example"}
		r.Learn(addr("203.0.113.1"), names, 17*time.Hour)
		r.Learn(addr("203.0.113.2"), names, 18*time.Hour)
		r.Learn(addr("203.0.113.3"), []string{"bot.example.org"}, 0)
		r.Learn(addr("203.0.113.4"), names, -time.Second)
		got, known := r.Confirmed(addr("::ffff:203.0.113.1"))
		if !known || !slices.Equal(got, names) || asked.Load() > 0 {
			t.Errorf("a learned address: %q, %v, asked %d times", got, known, asked.Load())
		}
		for _, other := range []string{"203.0.113.2", "203.0.113.3", "203.0.113.4"} {
			if got, known := r.Confirmed(addr(other)); known || len(got) > 0 {
				t.Errorf("%s: %q, %v", other, got, known)
			}
		}
		time.Sleep(8 * time.Hour)
		synctest.Wait()
		if got, known := r.Confirmed(addr("203.0.113.1")); known {
			t.Errorf("25 hours after it was confirmed: %q", got)
		}
	})
}
