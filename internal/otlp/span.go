package otlp

import (
	"log/slog"
	"strings"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
)

// A Span describes one request that a server has answered. Texts may come from the client: bytes that are
// not UTF-8 are replaced.
type Span struct {
	Context            // its own
	Parent     [8]byte // the span of the proxy in front; zeros: none
	State      string  // the tracestate of the parent
	Name       string
	Start      time.Time
	Took       time.Duration
	Failed     bool        // the server could not answer the request as it should
	Attributes []slog.Attr // of the kinds string, int64, float64 and bool
}

// Bits of the flags of a span.
const (
	sampledFlag      = 1
	parentKnownFlag  = 1 << 8 // the next bit has a meaning
	parentRemoteFlag = 1 << 9
)

// request returns what the collector gets about spans.
func request(o *Options, spans []*Span) *collectorpb.ExportTraceServiceRequest {
	all := make([]*tracepb.Span, len(spans))
	for i, s := range spans {
		all[i] = s.message()
	}
	return &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: messages([]slog.Attr{
			slog.String("service.name", o.Service), slog.String("service.version", o.Version)})},
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "fairshare", Version: o.Version}, Spans: all}},
	}}}
}

func (s *Span) message() *tracepb.Span {
	m := &tracepb.Span{
		TraceId: s.Trace[:], SpanId: s.Span[:], TraceState: valid(s.State), Name: valid(s.Name),
		Flags: sampledFlag | parentKnownFlag, Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(s.Start.Add(max(s.Took, 0)).UnixNano()),
		Attributes: messages(s.Attributes),
	}
	if s.Parent != [8]byte{} {
		m.ParentSpanId = s.Parent[:]
		m.Flags |= parentRemoteFlag
	}
	if s.Failed {
		m.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	return m
}

func messages(attributes []slog.Attr) []*commonpb.KeyValue {
	all := make([]*commonpb.KeyValue, len(attributes))
	for i, a := range attributes {
		value := new(commonpb.AnyValue)
		switch a.Value.Kind() {
		case slog.KindInt64:
			value.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.Int64()}
		case slog.KindFloat64:
			value.Value = &commonpb.AnyValue_DoubleValue{DoubleValue: a.Value.Float64()}
		case slog.KindBool:
			value.Value = &commonpb.AnyValue_BoolValue{BoolValue: a.Value.Bool()}
		default:
			value.Value = &commonpb.AnyValue_StringValue{StringValue: valid(a.Value.String())}
		}
		all[i] = &commonpb.KeyValue{Key: a.Key, Value: value}
	}
	return all
}

// valid returns a text without bytes that protobuf refuses.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
