package otlp

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A collector answers requests as a function says, and notes when they came.
type collector struct {
	answer func(try int, r *http.Request) (*http.Response, error)

	mu    sync.Mutex
	at    []time.Duration // since the start
	spans []int           // of each request
	urls  []string
	start time.Time
}

func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var request collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.at = append(c.at, time.Since(c.start))
	c.spans = append(c.spans, len(request.ResourceSpans[0].ScopeSpans[0].Spans))
	c.urls = append(c.urls, r.URL.String())
	try := len(c.at)
	c.mu.Unlock()
	return c.answer(try, r)
}

func answer(status int, header, value string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{header: {value}}, Body: http.NoBody}, nil
}

func start(c *collector) *Exporter {
	c.start = time.Now()
	e := newExporter(c)
	e.Replace(&Options{URL: "http://collector/v1/traces", Service: "shop", Version: "1"})
	return e
}

func add(e *Exporter, n int) {
	for range n {
		e.Add(&Span{Name: "GET", Start: time.Now()})
	}
}

func expect(t *testing.T, e *Exporter, exported, dropped int64) {
	t.Helper()
	if x, d := e.Counts(); x != exported || d != dropped {
		t.Errorf("%d exported and %d dropped, want %d and %d", x, d, exported, dropped)
	}
}

// A batch is sent a second after its first span, or at once when it is full.
func TestSpansAreSentInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int, *http.Request) (*http.Response, error) { return answer(200, "X", "") }}
		e := start(c)
		defer e.Close(0)
		add(e, 3)
		time.Sleep(delay)
		synctest.Wait()
		add(e, mostInBatch)
		synctest.Wait()
		if len(c.spans) != 2 || c.spans[0] != 3 || c.spans[1] != mostInBatch || c.at[0] != delay || c.at[1] != delay {
			t.Errorf("%v at %v", c.spans, c.at)
		}
		expect(t, e, 3+mostInBatch, 0)
	})
}

// While the collector is away, a batch is tried again after growing pauses, and then dropped.
func TestDeadCollectorDropsSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int, *http.Request) (*http.Response, error) { return nil, errors.New("refused") }}
		e := start(c)
		defer e.Close(0)
		add(e, 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{1, 2, 4, 8, 16}; len(c.at) != len(want) {
			t.Errorf("tried at %v", c.at)
		} else {
			for i, at := range want {
				if c.at[i] != at*time.Second {
					t.Errorf("tried at %v", c.at)
				}
			}
		}
		expect(t, e, 0, 2)
		if n, err := e.Lost(); n != 2 || err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%d lost: %v", n, err)
		}
		if n, err := e.Lost(); n != 0 || err != nil {
			t.Errorf("reported twice: %d, %v", n, err)
		}
	})
}

// A collector that never answers delays nobody, and the queue stays bounded.
func TestSlowCollectorDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		e := start(c)
		add(e, mostInBatch)
		synctest.Wait() // the collector has the first batch
		before := time.Now()
		var adding sync.WaitGroup
		for range 8 {
			adding.Go(func() { add(e, mostWaiting) })
		}
		adding.Wait()
		if !time.Now().Equal(before) {
			t.Errorf("adding took %v", time.Since(before))
		}
		expect(t, e, 0, 7*mostWaiting)
		if n, err := e.Lost(); n != 7*mostWaiting || err != nil {
			t.Errorf("%d lost: %v", n, err)
		}
		e.Close(2 * time.Second)
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("closing took %v", took)
		}
		expect(t, e, 0, 8*mostWaiting+mostInBatch)
		e.Add(&Span{})
		expect(t, e, 0, 8*mostWaiting+mostInBatch+1)
	})
}

// The status of the answer says whether a batch is sent again.
func TestAnswersOfTheCollector(t *testing.T) {
	partial, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{
		PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "too\nold"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		first             func() (*http.Response, error)
		tries             int
		at                time.Duration // of the last
		exported, dropped int64
		message           string
	}{
		"bad request": {func() (*http.Response, error) { return answer(400, "X", "") }, 1, delay, 0, 2,
			"the collector answered 400 Bad Request"},
		"credentials": {func() (*http.Response, error) { return answer(401, "X", "") }, 1, delay, 0, 2,
			"the collector answered 401 Unauthorized"},
		"redirect": {func() (*http.Response, error) { return answer(307, "Location", "http://elsewhere/") }, 1, delay,
			0, 2, "the collector answered 307 Temporary Redirect"},
		"busy": {func() (*http.Response, error) { return answer(503, "Retry-After", "7") }, 2, delay + 7*time.Second,
			2, 0, ""},
		"very busy": {func() (*http.Response, error) { return answer(429, "Retry-After", "99999") }, 2,
			delay + longestWait, 2, 0, ""},
		"partial": {func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(string(partial)))}, nil
		}, 1, delay, 1, 1, `the collector rejected spans: "too\nold"`},
		"no protobuf": {func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("<html>"))}, nil
		}, 1, delay, 2, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := &collector{answer: func(try int, _ *http.Request) (*http.Response, error) {
				if try == 1 {
					return c.first()
				}
				return answer(200, "X", "")
			}}
			e := start(got)
			defer e.Close(0)
			add(e, 2)
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(got.at) != c.tries || got.at[len(got.at)-1] != c.at {
				t.Errorf("%s: tried at %v", name, got.at)
			}
			if x, d := e.Counts(); x != c.exported || d != c.dropped {
				t.Errorf("%s: %d exported, %d dropped", name, x, d)
			}
			if _, err := e.Lost(); c.message != "" && (err == nil || err.Error() != c.message) {
				t.Errorf("%s: %v, want %s", name, err, c.message)
			}
		})
	}
}

// Close sends what waits. Other options hold for spans that wait; without options spans are ignored.
func TestReplaceAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int, *http.Request) (*http.Response, error) { return answer(200, "X", "") }}
		e := start(c)
		add(e, 1)
		e.Replace(nil)
		add(e, 1)
		e.Replace(&Options{URL: "http://other/v1/traces"})
		add(e, 2)
		e.Close(time.Second)
		expect(t, e, 2, 1)
		if len(c.urls) != 1 || c.urls[0] != "http://other/v1/traces" || c.at[0] != 0 {
			t.Errorf("%v at %v", c.urls, c.at)
		}
		e.Replace(&Options{}) // too late
		e.Close(time.Second)
		never := newExporter(c)
		never.Add(&Span{})
		never.Close(time.Second)
		expect(t, never, 0, 0)
	})
}

// Other options end the pause after a failure, so that a corrected address holds at once.
func TestReplaceEndsThePauseAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(_ int, r *http.Request) (*http.Response, error) {
			if r.URL.Host == "collector" {
				return answer(503, "Retry-After", "20")
			}
			return answer(200, "X", "")
		}}
		e := start(c)
		defer e.Close(0)
		add(e, 1)
		time.Sleep(5 * time.Second)
		e.Replace(&Options{URL: "http://other/v1/traces"})
		synctest.Wait()
		if len(c.at) < 2 || c.urls[len(c.at)-1] != "http://other/v1/traces" || c.at[len(c.at)-1] != 5*time.Second {
			t.Errorf("%v at %v", c.urls, c.at)
		}
		expect(t, e, 1, 0)
		add(e, 1)
		e.Replace(nil)
		synctest.Wait()
		expect(t, e, 1, 1)
	})
}

// Text that is not UTF-8 does not make a batch invalid.
func TestTextOfClientsIsRepaired(t *testing.T) {
	m := request(new(Options), []*Span{{Name: "GET", State: "\xff", Attributes: []slog.Attr{
		slog.String("url.path", "/\xc3("), slog.Int64("n", 1), slog.Float64("f", 0.5), slog.Bool("b", true)}}})
	if _, err := proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	span := m.ResourceSpans[0].ScopeSpans[0].Spans[0]
	if got := span.Attributes[0].Value.GetStringValue(); got != "/\uFFFD(" || span.TraceState != "\uFFFD" {
		t.Errorf("%q, %q", got, span.TraceState)
	}
	if span.Attributes[1].Value.GetIntValue() != 1 || span.Attributes[2].Value.GetDoubleValue() != 0.5 ||
		!span.Attributes[3].Value.GetBoolValue() {
		t.Error(span.Attributes)
	}
}
