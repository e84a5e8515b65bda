package accesslog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// combinedLog writes a log of n combined lines, about 210 bytes each.
func combinedLog(tb testing.TB, n int) (path string, size int64) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "access.log")
	out := make([]byte, 0, n*230)
	for i := range n {
		out = fmt.Appendf(out, "%d.%d.%d.%d - - [%02d/Nov/2026:%02d:%02d:%02d +0100] \"GET /catalogue/item-%d?page=%d HTTP/1.1\" 200 %d "+
			"\"https://shop.example.org/catalogue/\" \"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36\"\n",
			1+i%223, i%251, i/7%251, i%253, 1+i/864000, i/36000%24, i/600%60, i/10%60, i%5000, i%9, 500+i%30000)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path, int64(len(out))
}

func BenchmarkReadCombined(b *testing.B) {
	const lines = 200_000
	path, size := combinedLog(b, lines)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path, Options{})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			batch, err := f.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			n += len(batch.Entries)
			batch.Release()
		}
		f.Close()
		if n != lines {
			b.Fatalf("read %d lines, want %d", n, lines)
		}
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
