package accesslog

import (
	"testing"
	"time"
)

func TestReferences(t *testing.T) {
	const reference = "0123456789abcdef0123456789abcdef"
	for _, c := range []struct{ name, line, want string }{
		{"nginx", `{"time":"1795467000.123","remote_addr":"192.0.2.1","status":"404","body_bytes_sent":"5","request_time":"0.002",` +
			`"upstream_response_time":"0.001","fairshare_reference":"` + reference + `"}`, reference},
		{"Caddy", `{"level":"info","ts":1795467000.123,"logger":"http.log.access.log0","msg":"handled request",` +
			`"request":{"remote_ip":"192.0.2.1","proto":"HTTP/1.1","method":"GET","host":"shop.example","uri":"/?user_id=1",` +
			`"headers":{"User_id":["fedcba9876543210fedcba9876543210"]}},"user_id":"` + reference +
			`","duration":0.001,"size":5,"status":404,"resp_headers":{}}`, reference},
		{"Apache", `{"time":"1795467000","remote_addr":"192.0.2.1","status":"404","body_bytes_sent":"5",` +
			`"request_time_us":"1000","fairshare_reference":"` + reference + `"}`, reference},
		{"Apache, without a question", `{"time":"1795467000","remote_addr":"192.0.2.1","status":"404",` +
			`"body_bytes_sent":"5","request_time_us":"1000","fairshare_reference":"-"}`, ""},
		{"HAProxy by rsyslog", `Nov 23 20:00:00 front haproxy-fairshare[17]: {"time":"1795467000",` +
			`"remote_addr":"192.0.2.1","status":"404","body_bytes_sent":"5","request_time_ms":"3",` +
			`"upstream_response_time_ms":"1","fairshare_reference":"` + reference + `"}`, reference},
		{"Traefik", `{"ClientHost":"192.0.2.1","DownstreamContentSize":5,"DownstreamStatus":404,"Duration":3000000,` +
			`"OriginDuration":1000000,"RequestMethod":"GET","RequestPath":"/","StartUTC":"2026-11-23T20:00:00.1Z",` +
			`"request_Fairshare-Reference":"` + reference + `"}`, reference},
		{"in fields of a client", `192.0.2.1 - - [23/Nov/2026:20:00:00 +0000] "GET /fairshare_reference=` + reference +
			` HTTP/1.1" 404 5 "-" "fairshare_reference\":\"` + reference + `"`, ""},
	} {
		s, err := NewStream(Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := s.Parse([]byte(c.line+"\n"), 0)
		if len(b.Entries) != 1 {
			t.Fatalf("%s: not read: %+v", c.name, b.Skipped)
		}
		took := b.Entries[0].Upstream
		if b.Entries[0].Has&HasUpstream == 0 {
			took = b.Entries[0].Duration
		}
		if c.want != "" && took != time.Millisecond {
			t.Errorf("%s: it took %v", c.name, took)
		}
		if e := b.Entries[0]; e.Reference != c.want || e.Status != 404 || e.Bytes != 5 {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
}
