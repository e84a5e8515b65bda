// Package grpc guards a gRPC server with interceptors. A refused call ends with
// ResourceExhausted and a RetryInfo, which clients know how to wait by.
package grpc

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"fairshare"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A UserOf returns the authenticated user of a call, for limits by value:user;
// "" if there is none. Such a call is counted by its address.
type UserOf func(context.Context) string

// Unary returns an interceptor that judges each call with one answer.
func Unary(guard *fairshare.Guard, user UserOf) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, call any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		var answer any
		err := do(ctx, guard, user, info.FullMethod, func(ctx context.Context) (err error) {
			answer, err = handler(ctx, call)
			return err
		})
		return answer, err
	}
}

// Stream returns an interceptor that judges each streaming call.
func Stream(guard *fairshare.Guard, user UserOf) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return do(stream.Context(), guard, user, info.FullMethod, func(context.Context) error {
			return handler(server, stream)
		})
	}
}

func do(ctx context.Context, guard *fairshare.Guard, user UserOf, method string,
	call func(context.Context) error) error {
	req := fairshare.Request{Addr: addr(ctx), Method: http.MethodPost, Values: map[string]string{"user": user(ctx)}}
	req.SetTarget(method)
	err := guard.Do(ctx, &req, func(ctx context.Context) (fairshare.Outcome, error) {
		err := call(ctx)
		return fairshare.Outcome{Status: httpStatus(status.Code(err)), Cost: 1}, err
	})
	var refused *fairshare.RefusedError
	if errors.As(err, &refused) {
		return refusal(refused)
	}
	return err
}

func addr(ctx context.Context) netip.Addr {
	client, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	at, _ := netip.ParseAddrPort(client.Addr.String()) // invalid: all such clients count as one
	return at.Addr().Unmap().WithZone("")
}

// refusal returns the error that a refused client gets.
func refusal(refused *fairshare.RefusedError) error {
	if refused.Action == fairshare.Block {
		return status.Error(codes.PermissionDenied, "this server does not accept calls of this kind")
	}
	s, err := status.New(codes.ResourceExhausted, "too many calls").
		WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(refused.Wait)})
	if err != nil {
		return err
	}
	return s.Err()
}

// httpStatus returns the status of HTTP that means the same as a code, so that
// limits of errors count a call by the client's fault.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}
