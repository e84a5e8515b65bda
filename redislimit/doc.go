// Package redislimit counts in Redis (6.2 or later) or Valkey (7.2 or later), so
// that several programs enforce one policy together. Start with [Connect] and
// [Open].
//
// The programs of a group are its members; M of them are alive. Each has a view of
// the counters: what the store reported last, and what the member has charged since.
// A request that the view refuses is refused without asking the store. A request
// that is far from the limit passes on credit, and is reported within 5 ms. All
// others wait for one round trip, at most Options.Wait. One script decides all limits
// of one client. What no other member has written meanwhile is only replaced in the store:
// this member knows it, and has decided.
//
// # What a group admits
//
// Let A be what a limit allows at once, and f = ⌊A·slack/M⌋. All members together
// admit at most A + M·f, which is at most A·(1 + slack), even if they are asked at
// the same moment. They admit exactly A where A is below M/slack (48 with three
// members), where the limit is Exact, and with one member. One member alone answers
// as memlimit does, to the nanosecond. A member that is killed takes at most f with
// it that it had not reported.
//
// There are three differences from one program:
//   - Nearly all requests hold an error and give it back. So f of errors is
//     ⌊(A + M)/2M⌋ if that is more: members that are attacked at the same moment may
//     count half of the limit more. Exact avoids this; then each request asks.
//   - What requests are expected to cost is the mean of each member's own requests.
//   - The times of refused requests under a quiet limit are reported within 100 ms, and
//     a refund at another member is noticed within a second.
//
// Keys that lie in different places of a cluster are decided in parallel. If one
// part is refused, the others are undone at once. Meanwhile a request of somebody else
// may be refused wrongly, but none passes wrongly.
//
// # When the store is away
//
// No request waits longer than Options.Wait, and usually not longer than four times
// the 99th percentile of the last minute. When 5 of 20 questions had no answer in
// time, or the connection is lost, nobody waits any more. Then each member decides by
// its view, and also admits a share of each limit only, see [Away]. All members
// together admit at most A in a window, and below A·(2 + slack) in the first. A member
// probes the store each 250 ms. After the first good probe it reports what it counted
// and what it remembers, those next to their limits first. After three good probes it
// asks again. For ten seconds the store takes the maximum of what it has and what
// members remember. So an empty restart, FLUSHALL or a failover resets no counter that
// a member knows.
//
// A message whose fate is unknown is never sent again as a charge. The member reports
// its view instead, and the store takes the maximum. So nothing counts twice.
//
// # Clocks
//
// Members correct their times to the store's clock if they differ by more than 10 ms:
// by 1 ms each second, or at once if they differ by more than a second, which is
// reported.
//
// # What is stored
//
// Each key of limits is a string named fs2:GROUP:{T}K, where T is a keyed hash of the
// client's network (an IPv4 /24 or IPv6 /48) and K one of the key. No address is
// stored in the clear. A client takes about 200 bytes for its first limit and 40 for
// each other. Only the list of members, the secret of the hashes and the probes have
// no TTL: some hundred bytes each. All else expires when nothing is counted any more.
// The eviction policy of the store should be volatile-ttl. A store that is full is
// treated as one that is away.
//
// Versions that store states in different forms have different prefixes (fs1, fs2).
// Their members count apart, so during an upgrade the group admits at most twice each
// limit. The list of members, the probes and the slots of an upstream stay under fs1.
//
// The command fairshare and package site also share bans through the store. These are under fs1, with the
// addresses in the clear, and need more rights: fairshare check --connect prints all.
//
// A program that can write these keys decides what the members count. So use TLS and
// a user of its own. The least that it needs is:
//
//	ACL SETUSER fairshare on >PASSWORD ~fs1:* ~fs2:* resetchannels -@all +eval
//	  +evalsha +get +set +hget +hset +hsetnx +hgetall +hdel +del +pexpire +time
//	  +hello +client|setname +ping +cluster|slots +cluster|shards
//
// Sentinels need a user that may SUBSCRIBE and call SENTINEL.
package redislimit
