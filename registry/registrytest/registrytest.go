// Package registrytest has the tests that every [registry.Registry] passes, and a slow
// model of one. Start with [Run].
package registrytest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// An Opener opens a registry for a test, and closes it at the end of t. In one test the
// same name means the same records, as for several processes. The name "" means new
// records each time.
type Opener func(t testing.TB, name string, b registry.Bounds) registry.Registry

// Run runs all tests, each with registries of its own.
func Run(t *testing.T, open Opener) {
	for _, test := range []func(*testing.T, Opener){
		testClientsAddUpAndStickyFieldsStay, testEqualClientsAreSortedBySecondColumn, testClientsAreSorted,
		testLiftAndForgetRunInSteps, testWriteDoesNotUndoALift, testWriteDoesNotUndoAForget,
		testWriteDoesNotUndoChangesOfProvisionalClients, testWriteDoesNotUndoAForgetOfOneProvisionalClient,
		testOverridesOnPrefixesOfAProvisionalClient, testChangesReportsOperatorsChanges,
		testStoriesOfANetworkAreBounded, testSettingsAreRead, testExtremeValuesAreBounded,
		testHeaviestClientsOfANetwork, testWriteStaysNearTheBounds, testFirstSeenReportsEachClientOnce,
		testFleetsAreRecorded, testEmptyClientIDIsAnError, testRegistryMatchesModel,
	} {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		_, name, _ = strings.Cut(name, ".test")
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

var (
	ctx   = context.Background()
	start = time.Date(2021, 11, 21, 4, 0, 0, 123456789, time.UTC)
)

// ID returns the client of a text that [fairshare.ParseClientID] accepts.
func ID(s string) fairshare.ClientID {
	id, err := fairshare.ParseClientID(s)
	if err != nil {
		panic(err)
	}
	return id
}

func ids(names ...string) (ids []fairshare.ClientID) {
	for _, name := range names {
		ids = append(ids, ID(name))
	}
	return ids
}

// Check ends a test after an error of a call.
func Check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Same reports a difference; nil and empty are equal.
func Same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := diff(got, want); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func diff(got, want any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

// AllBans returns the bans that Bans yields.
func AllBans(t testing.TB, r registry.Reader, now time.Time, all bool) (bans []fairshare.BanRecord) {
	t.Helper()
	for b, err := range r.Bans(ctx, now, all) {
		Check(t, "Bans", err)
		bans = append(bans, b)
	}
	return bans
}

// Delta returns the requests of a client at a time.
func Delta(name string, at time.Time, requests int64) registry.ClientDelta {
	return registry.ClientDelta{Client: ID(name), FirstSeen: at, LastSeen: at,
		Spent:     registry.Spent{Requests: requests},
		UserAgent: "agent of " + name}
}

// Ban returns a ban of a client by a rule.
func Ban(name string, began time.Time, length time.Duration) fairshare.BanRecord {
	return fairshare.BanRecord{Client: ID(name), Rule: "rapid", Kind: fairshare.ByAddr, Number: 1, Began: began,
		Until: began.Add(length), Since: began.Add(length)}
}

// Numbered returns a client for a number.
func Numbered(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255) }

// Many returns client i, from anywhere in the address space; a tenth are IPv6. The
// first ones are in the order of their addresses, so that a file is created faster;
// those from Orderly on are not.
func Many(i int) fairshare.ClientID {
	x := uint64(i) << 40
	if i >= Orderly {
		x = uint64(i) * 0x9E3779B97F4A7C15
	}
	if i%10 == 0 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], 0x20010db8<<32|x>>32)
		return fairshare.PrefixID(netip.PrefixFrom(netip.AddrFrom16(b), 64))
	}
	return fairshare.PrefixID(netip.PrefixFrom(netip.AddrFrom4(
		[4]byte{byte(x >> 56), byte(x >> 48), byte(x >> 40), byte(x >> 32)}), 32))
}

// Orderly is the number of clients of [Many] in the order of their addresses.
const Orderly = 1 << 24

// ManyDeltas returns updates of some clients of [Many]. Few have many requests, as is
// usual.
func ManyDeltas(first, n int, at time.Time) []registry.ClientDelta {
	all := make([]registry.ClientDelta, n)
	for i := range all {
		rank := float64(rand.IntN(1<<30)+1) / (1 << 30)
		s := registry.Spent{Requests: int64(min(2/rank, 1e6)), Bytes: 12345, Time: time.Duration(50e6 / rank)}
		s.Refused = s.Requests / 3
		s.CPU = s.Time / 2
		all[i] = registry.ClientDelta{Client: Many(first + i), FirstSeen: at, LastSeen: at, Spent: s,
			UserAgent: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
				"Chrome/140.0.0.0 Safari/537.36"}
		if i%50 == 0 {
			all[i].Bot, all[i].BotState = fmt.Sprintf("bot%d", i/50%20), fairshare.Forged
		}
	}
	return all
}
