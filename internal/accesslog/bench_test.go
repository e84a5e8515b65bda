package accesslog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// combinedLog writes a log of n combined lines, about 210 bytes each.
func combinedLog(tb testing.TB, n int) (path string, size int64) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "access.log")
	out := make([]byte, 0, n*230)
	for i := range n {
		out = fmt.Appendf(out,
			"%d.%d.%d.%d - - [%02d/Nov/2026:%02d:%02d:%02d +0100] \"GET /catalogue/item-%d?page=%d HTTP/1.1\" 200 %d "+
				"\"https://shop.example.org/catalogue/\" \"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36\"\n",
			1+i%223, i%251, i/7%251, i%253, 1+i/864000, i/36000%24, i/600%60, i/10%60, i%5000, i%9, 500+i%30000)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path, int64(len(out))
}

// readLines reads a file and returns how many lines were entries.
func readLines(b *testing.B, path string, opts Options) int {
	f, err := Open(path, opts)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	n := 0
	for {
		batch, err := f.Next()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		n += len(batch.Entries)
		batch.Release()
	}
}

func benchmarkRead(b *testing.B, path string, size int64, lines int, opts Options) {
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if n := readLines(b, path, opts); n != lines {
			b.Fatalf("read %d lines, want %d", n, lines)
		}
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkReadCombined(b *testing.B) {
	const lines = 200_000
	path, size := combinedLog(b, lines)
	b.Run("all cores", func(b *testing.B) { benchmarkRead(b, path, size, lines, Options{}) })
	b.Run("one worker", func(b *testing.B) { benchmarkRead(b, path, size, lines, Options{Workers: 1}) })
	b.Run("format string", func(b *testing.B) {
		benchmarkRead(b, path, size, lines,
			Options{Format: `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`})
	})
}

// One line of each format, many times.
func BenchmarkReadFormats(b *testing.B) {
	for _, c := range []struct{ name, head, line string }{
		{"common", "", seeds[1]},
		{"caddy-json", "",
			`{"level":"info","ts":1709043406.3288786,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"192.0.2.7","remote_port":"64049","client_ip":"192.0.2.7","proto":"HTTP/1.1","method":"GET","host":"shop.example.org","uri":"/a?b=c","headers":{"Pragma":["no-cache"],"Cache-Control":["no-cache"],"User-Agent":["Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/122.0.0.0 Safari/537.36"],"Accept-Language":["en"],"Accept-Encoding":["gzip, deflate"],"Cookie":["REDACTED"]}},"bytes_read":0,"user_id":"","duration":0.000033987,"size":2326,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html"]}}`},
		{"nginx-json", "",
			`{"time_iso8601":"2026-11-20T10:00:00+01:00","remote_addr":"192.0.2.7","request":"GET /a?b=c HTTP/1.1","status":"200","body_bytes_sent":"2326","http_referer":"https://shop.example.org/","http_user_agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64)","http_x_forwarded_for":"","request_time":"0.250"}`},
		{"iis-w3c",
			"#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\n",
			`2026-11-20 10:00:00 10.0.0.1 GET /a b=c 443 - 192.0.2.7 Mozilla/5.0+(Windows+NT+10.0;+Win64;+x64)+AppleWebKit/537.36 https://shop.example.org/ 200 0 0 65`},
		{"haproxy-http", "", seeds[12]},
		{"aws-alb", "", seeds[13]},
	} {
		b.Run(c.name, func(b *testing.B) {
			const lines = 50_000
			text := c.head + strings.Repeat(c.line+"\n", lines)
			path := filepath.Join(b.TempDir(), "log")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			benchmarkRead(b, path, int64(len(text)), lines, Options{})
		})
	}
}
