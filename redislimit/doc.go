// Package redislimit counts in Redis (6.2 or later) or Valkey (7.2 or later), so
// that several programs enforce one policy together. Start with [Connect] and
// [Open].
//
// The programs of a group are its members; M of them are alive. Each has a view of
// the counters: what the store reported last, and what the member has charged since.
// A request that the view refuses is refused without asking the store. A request
// that is far from the limit passes on credit, and is reported within 5 ms. All
// others wait for one round trip, at most Options.Wait.
//
// # What a group admits
//
// Let A be what a limit allows at once, and f = ⌊A·slack/M⌋. All members together
// admit at most A + M·f, which is at most A·(1 + slack), even if they are asked at
// the same moment. They admit exactly A where A is below M/slack (48 with three
// members), where the limit is Exact, and with one member.
//
// # When the store is away
//
// No request waits longer than Options.Wait. When 5 of 20 questions had no answer in
// time, or the connection is lost, nobody waits any more. Then each member decides by
// its view and admits a share of each limit, see [Away]. What it counts meanwhile is
// reported when the store is back. For ten seconds after that the members also report
// what they remember, and the store takes the maximum. So neither an empty restart
// nor a failover resets a counter.
//
// # What is stored
//
// Each key of a limit is a hash named fs1:GROUP:{T}K, where T is a keyed hash of the
// client's network (an IPv4 /24 or IPv6 /48) and K one of the key. No address is
// stored in the clear. All keys of clients expire when nothing is counted any more.
// The eviction policy of the store should be volatile-ttl.
package redislimit
