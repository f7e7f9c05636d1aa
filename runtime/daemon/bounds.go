package daemon

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The limits of time for the daemon and the OCI runtime behind it.
const (
	// DefaultTimeout is how long an answer may take. Making a sandbox takes a tenth of a second,
	// or ten seconds on a host a hundred times slower.
	DefaultTimeout = 30 * time.Second
	// BulkTimeout bounds the calls that move or remove the bytes of whole images.
	BulkTimeout = 30 * time.Minute
	// CleanupTimeout bounds each removal. A shorter [Target.Timeout] applies instead. If Timeout
	// is more than three times as long, as on a slow host, a third of Timeout applies.
	CleanupTimeout = 10 * time.Second
	// ReconnectTimeout is how long a daemon may be away before its sandboxes are given up. A
	// restarted daemon still knows them.
	ReconnectTimeout = 10 * time.Second
)

// bound limits the duration of every call of the daemon: otherwise a stopped daemon or a hanging
// OCI runtime would block a run forever. [Native] turns its error into runtime.ErrUnavailable.
func bound(usual time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		limit := usual
		service, name := strings.Trim(path.Dir(method), "/"), path.Base(method)
		switch {
		case strings.HasPrefix(service, "containerd.services.diff."),
			strings.HasPrefix(service, "containerd.services.snapshots.") && name != "View" && name != "Mounts" && name != "Stat",
			name == "Delete" && !strings.HasPrefix(service, "containerd.services.tasks."):
			limit = BulkTimeout
		}
		return within(ctx, limit, name, func(ctx context.Context) error { return invoke(ctx, method, request, reply, conn, opts...) })
	}
}

// BoundShim limits the duration of every call of sbench's own shim.
func BoundShim(limit time.Duration) ttrpc.UnaryClientInterceptor {
	return func(ctx context.Context, request *ttrpc.Request, response *ttrpc.Response, _ *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
		return within(ctx, limit, request.Method, func(ctx context.Context) error {
			if deadline, ok := ctx.Deadline(); ok { // ttrpc itself tells the shim only the caller's
				request.TimeoutNano = time.Until(deadline).Nanoseconds()
			}
			err := invoke(ctx, request, response)
			if err == nil {
				err = status.ErrorProto(response.Status) // nil if that is nil or OK
			}
			return err
		})
	}
}

// within calls invoke, which calls the method, with a limit unless it takes as long as a process
// runs.
func within(ctx context.Context, limit time.Duration, method string, invoke func(context.Context) error) error {
	if method == "Wait" {
		return invoke(ctx)
	}
	own := fmt.Errorf("containerd, or the OCI runtime behind it, gave no answer to %s within %s: "+
		"if this host is overloaded, fewer --jobs or a longer --daemon-timeout help", method, limit)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := invoke(bounded)
	deadline, _ := bounded.Deadline()
	switch {
	case err == nil || errors.Is(ctx.Err(), context.Canceled):
		return err
	case late(err):
		return status.Error(codes.DeadlineExceeded, own.Error())
	case time.Until(deadline) < limit/50: // the shim, too, knows it, and kills the OCI runtime
		return status.Errorf(codes.DeadlineExceeded, "%v: %s", own, status.Convert(err).Message())
	}
	return err
}

// late reports whether err comes from a deadline. The daemon knows the deadline and may end
// the call before this process does, with an error of its own or its shim's. So may a
// shorter deadline of the caller.
func late(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return strings.Contains(err.Error(), context.DeadlineExceeded.Error())
}
