package server

import (
	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// outcome is how a request ended; exactly one field is set.
type outcome[R any] struct {
	result *R
	input  *pb.InputRequired
	task   *pb.Task
}

// outcomeOf converts a result by its type; complete converts the one that the
// method is for. The error is the RPC's.
func outcomeOf[R any](s scope, r *mcpclient.Result, format pb.JsonFormat, complete func([]byte, convert.Format) (*R, error)) (o outcome[R], err error) {
	switch {
	case r.Type == mcpclient.ResultComplete:
		o.result, err = complete(r.Raw, format)
	case r.Type == mcpclient.ResultInputRequired:
		o.input, err = convert.InputRequired(r.Raw, format)
	case r.Type == mcpclient.ResultTask && s.method == methodCallTool: // the only request that becomes a task
		o.task, err = convert.Task(r.Raw, format)
	default:
		f := s.badReply(nil)
		f.message = s.about("the server answered with a result of type " + quote(r.Type) + ", which this method does not have")
		return o, s.build(f)
	}
	if err != nil {
		return outcome[R]{}, s.build(s.badReply(err))
	}
	return o, nil
}
