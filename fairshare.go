// Package fairshare keeps any one visitor of a web server from taking more than
// its share.
//
// Start with [Guard]. It applies a [Policy] to each [Request] and returns a
// [Verdict]: allow, refuse or block. [Guard.Do] does the same for work that is
// not an HTTP request.
//
//   - A [Policy] is a list of rules. Package policyfile reads it from a file.
//   - A [Limiter] counts, and [Bans] holds the clients that are banned. Packages
//     memlimit and membans keep both in memory, and memlimit.NewGuard makes a
//     Guard with them.
//   - Package httpguard puts a guard in front of an http.Handler.
//   - Package site does all of this with one policy file.
//
// The package itself knows neither net/http nor log files. Time is an argument, so
// the same decisions can be made again from an access log.
package fairshare
