package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// work is one operation that a load does again and again. The zero value is no work.
type work struct {
	Kind   string // echo, text, rows, progress or list
	Size   int    // bytes of text or rows, progress notifications, or tools with big schemas
	Struct bool   // arguments, structured content and schemas as Struct, not as JSON text
	Spread bool   // echo: over ten tools
	Fresh  bool   // list: of the target whose list may not be kept
}

// job is work that is ready to be done: by many at once.
type job struct {
	work     work
	requests []*pb.CallToolRequest
	list     *pb.ListToolsRequest
	want     string       // the text, or the JSON of the rows
	raw      string       // is in the answer of a reference that forwards it as it is
	told     atomic.Int64 // progress messages so far
}

func (w work) prepare() (*job, error) {
	format := pb.JsonFormat_JSON_FORMAT_TEXT
	if w.Struct {
		format = pb.JsonFormat_JSON_FORMAT_STRUCT
	}
	j, text, names := &job{work: w}, "", []string{w.Kind + "_" + strconv.Itoa(w.Size)}
	switch w.Kind {
	case "echo":
		text = strings.Repeat("0123456789abcdef", w.Size/16+1)[:w.Size]
		j.want, j.raw, names = text, text, []string{"echo"}
	case "text":
		j.want = lightmcp.Text(w.Size)
		j.raw = strings.Trim(strconv.Quote(j.want), `"`)
	case "rows":
		j.want = lightmcp.Rows(w.Size)
		j.raw = j.want
	case "progress":
		j.want, j.raw = "done", `"done"`
	case "list":
		j.raw = `"` + lightmcp.BigTool(w.Size-1) + `"`
		j.list = &pb.ListToolsRequest{Target: target, PageSize: 1000, JsonFormat: format}
		if w.Fresh {
			j.list.Target = freshTarget
		}
		return j, nil
	default:
		return nil, fmt.Errorf("there is no work of the kind %q", w.Kind)
	}
	if w.Spread {
		names = nil
		for i := range 10 {
			names = append(names, "echo_"+strconv.Itoa(i))
		}
	}
	for _, name := range names {
		request := &pb.CallToolRequest{Target: target, Name: name, JsonFormat: format}
		if w.Struct {
			request.Arguments = &structpb.Struct{Fields: map[string]*structpb.Value{"text": structpb.NewStringValue(text)}}
		} else {
			request.ArgumentsJson = new(`{"text":"` + text + `"}`)
		}
		j.requests = append(j.requests, request)
	}
	return j, nil
}

// do does the work once and checks the answer; n is any number.
func (j *job) do(ctx context.Context, over api, n int) error {
	switch j.work.Kind {
	case "list":
		response, err := over.ListTools(ctx, j.list)
		if err != nil {
			return err
		}
		return j.checkList(response)
	case "progress":
		return j.stream(ctx, over)
	}
	response, err := over.CallTool(ctx, j.requests[n%len(j.requests)])
	if err != nil {
		return err
	}
	return j.check(response)
}

// stream takes any number of progress messages: who tells of the newest one may leave out those before it.
func (j *job) stream(ctx context.Context, over api) error {
	events, ended := int64(0), false
	err := over.StreamTool(ctx, &pb.CallToolStreamRequest{Call: j.requests[0]}, func(event *pb.CallToolStreamResponse) error {
		switch e := event.GetEvent().(type) {
		case *pb.CallToolStreamResponse_Progress:
			events++
		case *pb.CallToolStreamResponse_Outcome:
			ended = true
			return j.check(e.Outcome)
		}
		return nil
	})
	j.told.Add(events)
	if err == nil && (events == 0 || events > int64(j.work.Size) || !ended) {
		err = fmt.Errorf("wrong answer: %d of %d progress messages, the outcome came: %t", events, j.work.Size, ended)
	}
	return err
}

func (j *job) check(response *pb.CallToolResponse) error {
	result := response.GetResult()
	if len(result.GetContent()) == 1 && result.GetContent()[0].GetText().GetText() == j.want {
		return nil
	}
	raw := result.GetStructuredContentJson()
	if raw == j.want || raw != "" && strings.Contains(raw, j.raw) {
		return nil
	}
	if rows := result.GetStructuredContent().GetStructValue().GetFields()["rows"].GetListValue().GetValues(); len(rows) > 0 && len(rows) == strings.Count(j.want, `"id":`) {
		return nil
	}
	return wrong(response)
}

func (j *job) checkList(response *pb.ListToolsResponse) error {
	tools := response.GetTools()
	if len(tools) == 1 && strings.Contains(tools[0].GetInputSchemaJson(), j.raw) {
		return nil
	}
	if len(tools) != len(lightmcp.Names())+j.work.Size {
		return fmt.Errorf("wrong answer: %d tools, want %d", len(tools), len(lightmcp.Names())+j.work.Size)
	}
	last := tools[len(tools)-1]
	if last.GetName() != lightmcp.BigTool(j.work.Size-1) || last.GetInputSchemaJson() == "" && len(last.GetInputSchema().GetFields()) == 0 {
		return wrong(last)
	}
	return nil
}

// wrong shows the beginning of an answer.
func wrong(answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return errors.Join(errors.New("wrong answer"), err)
	}
	return fmt.Errorf("wrong answer: %.300s", text)
}
