// Package accesslog reads the access logs of common servers. Start with [Open].
//
// A [File] returns its lines in [Batch]es, in the order of the file. Several goroutines parse lines
// at once. Memory is bounded, however long the file or a line is. A line that cannot be read is
// never an error: it is skipped and returned as a [Skip] with a reason.
package accesslog

import (
	"net/netip"
	"time"
)

// An Entry is one parsed access-log line. Its texts are unescaped and share memory with the batch:
// copy texts that must outlive it. Facts that the log does not have are empty, or marked as absent
// by Has.
type Entry struct {
	Time      time.Time     // the log's own time, UTC
	Client    netip.Addr    // the client field, for most servers the peer; unmapped, no zone
	Forwarded string        // a logged forwarding header, unchanged; "" if none
	Method    string        // "" when absent, or the request line is not HTTP
	Target    string        // path with query, or absolute form; "" when absent, or the request line is not HTTP
	Host      string        // requested host, with the port if logged
	Referer   string        // "" when absent or "-"
	UserAgent string        // "" when absent or "-"
	Cookie    string        // the Cookie header as logged; in logs with only yes or no: "logged=1" or ""
	Status    int           // 0 when absent
	Bytes     int64         // body (or sent) bytes; 0 when absent or "-"
	Duration  time.Duration // whole request; 0 when absent
	Upstream  time.Duration // time of all upstreams that were asked; 0 when absent, or when none was asked
	CPU       time.Duration // of the upstream, from its Server-Timing; 0 when absent
	Reference string        // Fairshare-Reference of the answer of forward-auth; "" when absent
	Has       Fields        // facts that this line has
	Line      int64         // physical line number in its file, from 1
	NoRequest bool          // the server logged a connection on which no request came: "-" or ""
}

// Fields is the set of facts that a log has.
type Fields uint16

const (
	HasForwarded Fields = 1 << iota
	HasHost
	HasReferer
	HasUserAgent
	HasCookie
	HasStatus
	HasBytes
	HasDuration
	HasMethod
	HasPath
	HasQuery
	HasUpstream
	HasCPU

	hasRequest = HasMethod | HasPath | HasQuery
)

// A Skip is a line that could not be read.
type Skip struct {
	Line   int64  // physical line number in its file, from 1
	Reason string // one of a fixed set, so that reasons can be counted
	Sample string // the line's first bytes, at most 200; shares memory with the batch
}

// ReasonClient is the Reason of a line whose client is not an IP address.
const ReasonClient = reasonClient

// Reasons for skipping a line.
const (
	reasonClient   = "client is no address"
	reasonTime     = "time cannot be parsed"
	reasonYear     = "year is not between 1970 and 2261"
	reasonCut      = "line ends before the byte count"
	reasonLong     = "line is longer than 1 MiB"
	reasonShape    = "not a line of this format"
	reasonStatus   = "status is no number"
	reasonBytes    = "byte count is no number"
	reasonNoTime   = "no time in brackets"
	reasonUser     = "no ident and user between client and time"
	reasonJSON     = "not a JSON object"
	reasonMessage  = "not an access-log message"
	reasonNoFields = "no #Fields line before it"
	reasonFields   = "more or fewer fields than #Fields names"
	reasonNoDate   = "no date for its time"
	reasonNoClient = "#Fields names no client address"
)

// passOver is returned by a parser for a header line, which is neither read nor skipped.
const passOver = "header"
