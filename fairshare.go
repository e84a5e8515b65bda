// Package fairshare keeps any one visitor of a web server from taking more
// than its share.
//
// Start with [Guard]: it runs a [Policy] over each [Request] and answers with
// a [Verdict]. A [Limiter] counts, and [Bans] holds the clients that are
// banned; packages memlimit and membans keep both in memory. Package policyfile
// reads policies from files, package httpguard puts a guard before an
// http.Handler.
//
// The package is plain arithmetic over values: time is an argument, and
// neither net/http nor log files are mentioned.
package fairshare
