package server

import (
	"context"
	"io"
	"net/http"

	"connectrpc.com/connect/v2"
)

// unknownProcedure stands for every procedure that is not served, whose names
// are the callers' choice (RPC semantic conventions, rpc.method).
const unknownProcedure = "/_OTHER"

// refusals runs what is refused before it becomes a call through the
// interceptors of telemetry, so that it is seen as the failed call that it is
// for its caller.
type refusals struct {
	chain   *connect.Server              // without methods
	traceID func(context.Context) string // may be nil
}

// refusedCall is a request that is answered with an error.
type refusedCall struct {
	err    *connect.Error
	answer func(ctx context.Context)
}

type refusedKey struct{}

func newRefusals(o *Options) *refusals {
	r := &refusals{chain: connect.NewServer(o.Interceptors...), traceID: o.TraceID}
	r.chain.SetUnknownHandler(func(ctx context.Context, _ connect.Spec, _ connect.ServerStream) error {
		job, ok := ctx.Value(refusedKey{}).(*refusedCall)
		if !ok || job.answer == nil {
			return nil
		}
		job.answer(ctx)
		job.answer = nil
		return job.err
	})
	return r
}

// run answers a request, whose procedure is "" if it is not served, and sets the
// trace header. answer writes and records the error; its context has the call's
// trace.
func (r *refusals) run(w http.ResponseWriter, req *http.Request, procedure string, err *connect.Error, answer func(ctx context.Context)) {
	info := &connect.CallInfo{Protocol: protocolOf(req, true).name(), PeerAddr: req.RemoteAddr}
	for name, values := range req.Header {
		info.RequestHeader().SetValues(name, values)
	}
	r.pass(req.Context(), info, procedure, err, func(ctx context.Context, trace string) {
		if trace != "" {
			w.Header().Set(HeaderTraceID, trace)
		}
		answer(ctx)
	})
}

// pass is run for any listener; trace is the trace header, "" for none.
func (r *refusals) pass(ctx context.Context, info *connect.CallInfo, procedure string, err *connect.Error, answer func(ctx context.Context, trace string)) {
	if procedure == "" {
		procedure = unknownProcedure
	}
	info.Spec = connect.Spec{Procedure: procedure}
	job := &refusedCall{err: err, answer: func(ctx context.Context) {
		trace := ""
		if r.traceID != nil {
			trace = r.traceID(ctx)
		}
		answer(ctx, trace)
	}}
	ctx = context.WithValue(context.WithoutCancel(ctx), refusedKey{}, job)
	_ = r.chain.Call(ctx, procedure, info, noStream{}) // the error is the one that was answered
	if job.answer != nil {                             // an interceptor went its own way; the caller must hear something
		job.answer(ctx)
	}
}

// noStream is the stream of a call that is over.
type noStream struct{}

func (noStream) Receive(any) error  { return io.EOF }
func (noStream) Send(any) error     { return io.EOF }
func (noStream) SendHeaders() error { return io.EOF }
