package journal

import (
	"io"
	"runtime"
	"testing"
	"time"
)

func BenchmarkAdd(b *testing.B) {
	for _, bench := range []struct {
		name string
		next func(e *Entry, i int)
		left int64 // lines left in the second; 0 means without end
	}{
		{"first", func(e *Entry, i int) { e.Client = v4(i * 2654435761) }, 0},
		{"repeat", func(e *Entry, i int) {}, maxLines},
		{"flood, one network", func(e *Entry, i int) { e.Client = v4(i & 255) }, maxLines},
		{"flood, ever new addresses", func(e *Entry, i int) { e.Client = v4(i * 2654435761) }, maxLines},
	} {
		b.Run(bench.name, func(b *testing.B) {
			j := open(b, Options{}, io.Discard)
			defer j.Close()
			e := example
			e.Time = time.Now()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if bench.left == 0 && i%100 == 0 { // as if seconds and minutes went by
					b.StopTimer()
					j.quota.Store(maxLines)
					j.writeRepeats(j.settings.Load(), 1<<40, 1<<20)
					for bytesWaiting(j) > enough {
						runtime.Gosched()
					}
					b.StartTimer()
				}
				bench.next(&e, i)
				j.Add(&e)
				i++
			}
			if lost := j.lost.Load(); lost > 0 {
				b.Errorf("%d lost", lost)
			}
		})
		b.Run(bench.name+", many at once", func(b *testing.B) {
			if bench.left == 0 {
				b.Skip("there are a hundred a second")
			}
			j := open(b, Options{}, io.Discard)
			defer j.Close()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				e := example
				e.Time = time.Now()
				for i := 0; pb.Next(); i++ {
					bench.next(&e, i)
					j.Add(&e)
				}
			})
		})
	}
}
