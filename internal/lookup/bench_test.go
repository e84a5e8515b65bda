package lookup

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Confirmed for one of 4,096 known addresses, as for a request.
func BenchmarkCached(b *testing.B) {
	const n = 4096
	m := newModel(b, func(addr netip.Addr) behaviour { return behaviour{name: addr.As4()[3]%2 == 1} })
	m.answers["1.2.0.192.list.example."] = nil
	r := open(b, Options{query: m.query, Lists: map[string]List{"list": {Zone: "list.example"}}})
	var asked [n]netip.Addr
	for i := range asked {
		asked[i] = v4(i, 64, 16)
		if _, known := r.Wait(context.Background(), asked[i]); !known {
			b.Fatal("not known")
		}
		if _, known := r.WaitListed(context.Background(), "list", asked[i]); !known {
			b.Fatal("not known")
		}
	}
	b.Run("Confirmed", func(b *testing.B) {
		b.ReportAllocs()
		i, known := 0, 0
		for b.Loop() {
			if _, ok := r.Confirmed(asked[i%n]); ok {
				known++
			}
			i++
		}
		if known != i {
			b.Errorf("%d of %d are known", known, i)
		}
	})
	b.Run("Confirmed/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if _, ok := r.Confirmed(asked[i%n]); !ok {
					b.Error("not known")
					return
				}
			}
		})
	})
	b.Run("Listed", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if codes := r.Listed("list", asked[i%n]); codes != nil {
				b.Fatal(codes)
			}
			i++
		}
	})
}

// The cost of a flood of new addresses for each request.
func BenchmarkNeverSeen(b *testing.B) {
	r := open(b, Options{query: func(ctx context.Context, _ string, _ dnsmessage.Type) (records, error) {
		<-ctx.Done()
		return records{}, ctx.Err()
	}})
	for name, address := range map[string]func(i int) netip.Addr{
		"IPv4": func(i int) netip.Addr {
			return netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
		},
		"one IPv6 prefix": func(i int) netip.Addr { // a network each
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i), byte(i >> 24), byte(i >> 16)})
		},
		"many IPv6 prefixes": func(i int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x24, byte(i >> 16), byte(i >> 8), byte(i)})
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				r.Confirmed(address(i))
			}
			if s := r.Stats(); s.Waiting > maxWaiting || i > 2*maxWaiting && s.Waiting < maxWaiting {
				b.Errorf("%d asked: %+v", i, s)
			}
		})
	}
}

func TestCachedPathDoesNotAllocate(t *testing.T) {
	m := newModel(t, func(netip.Addr) behaviour { return behaviour{name: true} })
	m.answers["1.2.0.192.list.example."] = addrs("127.0.0.3")
	r := open(t, Options{query: m.query, Lists: map[string]List{"list": {Zone: "list.example"}}})
	addr := netip.MustParseAddr("192.0.2.1")
	r.Wait(t.Context(), addr)
	r.WaitListed(t.Context(), "list", addr)
	got := testing.AllocsPerRun(1000, func() {
		if _, known := r.Confirmed(addr); !known {
			t.Error("not known")
		}
		if len(r.Hostnames(addr)) != 1 || len(r.Listed("list", addr)) != 1 {
			t.Error("not known")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
