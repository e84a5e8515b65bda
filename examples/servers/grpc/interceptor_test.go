package grpc

import (
	"context"
	"net"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// userOf takes the user from the metadata. A real server takes it from what its
// authentication has put into the context.
func userOf(ctx context.Context) string {
	if users := metadata.ValueFromIncomingContext(ctx, "test-user"); len(users) > 0 {
		return users[0]
	}
	return ""
}

func dial(t *testing.T, resource fairshare.Resource, n int64) healthpb.HealthClient {
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{Name: "calls", Limit: &fairshare.Limit{
		Resource: resource, N: n, Window: time.Hour, By: []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}},
	}}}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(Unary(guard, userOf)), grpc.StreamInterceptor(Stream(guard, userOf)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener := bufconn.Listen(1 << 16)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func as(t *testing.T, user string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "test-user", user)
}

func TestCallsAreLimitedByUser(t *testing.T) {
	client := dial(t, fairshare.Requests, 2)
	for i, step := range []struct {
		user string
		want codes.Code
	}{
		{"alice", codes.OK}, {"alice", codes.OK}, {"alice", codes.ResourceExhausted}, {"bob", codes.OK},
	} {
		_, err := client.Check(as(t, step.user), &healthpb.HealthCheckRequest{})
		if status.Code(err) != step.want {
			t.Fatalf("call %d: %v, want %v", i, err, step.want)
		}
		if step.want != codes.ResourceExhausted {
			continue
		}
		var delay time.Duration
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				delay = retry.RetryDelay.AsDuration()
			}
		}
		if delay <= 0 || delay > 2*time.Hour {
			t.Errorf("retry delay %v", delay)
		}
	}
}

func TestFailedCallsAreErrors(t *testing.T) {
	client := dial(t, fairshare.Errors, 1)
	unknown := &healthpb.HealthCheckRequest{Service: "unknown"}
	for i, want := range []codes.Code{codes.NotFound, codes.ResourceExhausted} {
		if _, err := client.Check(as(t, "alice"), unknown); status.Code(err) != want {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
}

func TestStreamsAreLimited(t *testing.T) {
	client := dial(t, fairshare.Requests, 1)
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		stream, err := client.Watch(as(t, "alice"), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != want {
			t.Errorf("stream %d: %v, want %v", i, err, want)
		}
	}
}
