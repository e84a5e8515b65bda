// Package accesslog reads the access logs of the usual servers. Start with
// [Open].
//
// A [File] hands out its lines in [Batch]es, in the order they stand. Lines
// are parsed by several goroutines at once; memory is bounded, however long
// the file or a line is. A line that cannot be judged is never an error: it is
// skipped, and said so with the reason.
package accesslog

import (
	"net/netip"
	"time"
)

// An Entry is one parsed access-log line. Its texts are unescaped and share
// memory with the batch they came in: copy what must outlive it. What a log
// does not hold is empty, or marked as absent by Has.
type Entry struct {
	Time      time.Time     // the log's own time, UTC
	Client    netip.Addr    // the client field: for most servers the peer; unmapped, no zone
	Forwarded string        // a logged forwarding header as it stood, "" if none
	Method    string        // "" when absent, or the request line is not HTTP
	Target    string        // request target: path with query, or absolute form; "" when absent, or the request line is not HTTP
	Host      string        // host the client asked for, port included if logged
	Referer   string        // "" when absent or "-"
	UserAgent string        // "" when absent or "-"
	Cookie    string        // the Cookie header as logged; for logs that say only yes or no: "logged=1" or ""
	Status    int           // 0 when absent
	Bytes     int64         // body (or sent) bytes; 0 when absent or "-"
	Duration  time.Duration // whole request; 0 when absent
	Upstream  time.Duration // of that the upstream's own, of all that were asked; 0 when absent, or none was asked
	CPU       time.Duration // of the upstream, as its Server-Timing told; 0 when absent
	Has       Fields        // which facts this line holds at all
	Line      int64         // physical line number in its file, from 1
}

// Fields tells which facts a log holds.
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

// A Skip is a line that could not be judged.
type Skip struct {
	Line   int64  // physical line number in its file, from 1
	Reason string // one of a fixed set, so that reasons can be counted
	Sample string // the line's first bytes, at most 200; shares memory with the batch
}

// Why a line is skipped.
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

// passOver, returned by a parser, says that a line is a header: neither read
// nor skipped.
const passOver = "header"
