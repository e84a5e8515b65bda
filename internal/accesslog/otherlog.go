package accesslog

import (
	"bytes"
	"time"
)

// A squidParser reads Squid's native log:
//
//	time elapsed client result/status bytes method URL user hierarchy/peer type
type squidParser struct{}

func (squidParser) parse(line []byte, e *Entry, w *worker) string {
	var f [7][]byte
	rest := line
	for i := range f {
		f[i], rest = cutWord(rest)
	}
	slash := bytes.IndexByte(f[3], '/')
	if _, _, ok := unixTime(f[0]); !ok || bytes.IndexByte(f[0], '.') < 9 || slash < 0 {
		return reasonShape
	}
	if f[6] == nil || rest == nil {
		return reasonCut
	}
	r := record{unit: time.Millisecond}
	r.put(factTime, 0, f[0])
	r.put(factDuration, 0, f[1])
	r.put(factClient, 0, f[2])
	r.put(factStatus, 0, f[3][slash+1:])
	r.put(factBytes, 0, f[4])
	r.put(factMethod, 0, f[5])
	r.put(factTarget, vagueTarget, f[6]) // strip_query_terms is on by default
	return r.fill(e, w, codedNot)
}

// An atlassianParser reads the access logs of Confluence and Jira:
//
//	[time] [forwarded] user thread client METHOD target HTTP/1.1 status 12ms bytes referer user agent
type atlassianParser struct{}

func (atlassianParser) parse(line []byte, e *Entry, w *worker) string {
	end := bytes.Index(line, []byte("] "))
	if line[0] != '[' || end < 0 {
		return reasonShape
	}
	r := record{unit: time.Millisecond}
	r.put(factTime, 0, line[1:end])
	rest := line[end+2:]
	var before [5][]byte // words before the method
	n := 0
	for ; n < len(before); n++ {
		text, next := cutWord(rest)
		if n >= 3 && len(next) > 0 && next[0] == '/' && isToken(str(text)) {
			break
		}
		before[n], rest = text, next
	}
	if n == len(before) {
		return reasonShape
	}
	r.put(factClient, 0, before[n-1])
	if n == 4 && isAddrList(before[0]) {
		r.put(factForwarded, 0, before[0])
	}
	proto := bytes.Index(rest, []byte(" HTTP/"))
	if proto < 0 {
		return reasonCut
	}
	request := proto + 1 + bytes.IndexByte(append(rest[proto+1:len(rest):len(rest)], ' '), ' ')
	r.put(factRequest, 0, rest[:request])
	_, rest = cutWord(rest[request:])
	status, rest := cutWord(rest)
	taken, rest := cutWord(rest)
	sent, rest := cutWord(rest)
	if len(sent) == 0 {
		return reasonCut
	}
	r.put(factStatus, 0, status)
	r.put(factDuration, 0, bytes.TrimSuffix(taken, []byte("ms")))
	r.put(factBytes, 0, sent)
	if referer, agent := cutWord(rest); len(referer) > 0 {
		r.put(factReferer, 0, referer)
		if len(agent) > 0 {
			r.put(factAgent, 0, agent)
		}
	}
	return r.fill(e, w, codedNot)
}

// A tsvParser reads the tab-separated format of old research logs: host, logname, time, method,
// url, response, bytes, and in some logs referer and useragent.
type tsvParser struct{}

func (tsvParser) parse(line []byte, e *Entry, w *worker) string {
	if bytes.HasPrefix(line, []byte("host\tlogname\ttime\t")) {
		return passOver
	}
	var f [9][]byte
	n := 0
	for rest := line; n < len(f); n++ {
		i := bytes.IndexByte(rest, '\t')
		if i < 0 {
			f[n] = rest
			n++
			break
		}
		f[n], rest = rest[:i], rest[i+1:]
	}
	if n < 7 {
		return reasonShape
	}
	if _, _, ok := unixTime(f[2]); !ok {
		return reasonTime
	}
	var r record
	for i, fact := range [...]fact{factClient, noFact, factTime, factMethod, factTarget, factStatus, factBytes,
		factReferer, factAgent} {
		if fact != noFact && i < n {
			r.put(fact, 0, f[i])
		}
	}
	return r.fill(e, w, codedNot)
}
