package convert

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// problem converts with demands and returns what is wrong with the result; "" = nothing.
func problem(t *testing.T, name, raw string) string {
	t.Helper()
	i := slices.IndexFunc(strict, func(c converter) bool { return c.name == name })
	m, err := strict[i].convert([]byte(raw), 0)
	if err == nil {
		return ""
	}
	form, ok := errors.AsType[*FormError](err)
	if !ok {
		t.Fatalf("%s %s: %v is no FormError, with %v", name, raw, err, m)
	}
	return form.Problem
}

func TestResultsThatAnswerNothingAreRefused(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"toolResult", `{}`, "neither content nor structuredContent"},
		{"toolResult", `{"content":null}`, "neither"},
		{"toolResult", `{"content":null,"structuredContent":null}`, "neither"},
		{"toolResult", `{"isError":false,"_meta":{}}`, "neither"},
		{"toolResult", `{"isError":"true"}`, "neither"},
		{"toolResult", `{"toolResult":"old"}`, "neither"},
		{"toolResult", `{"content":{}}`, "content is not a list"},
		{"toolResult", `{"content":"text","structuredContent":{}}`, "content is not a list"},
		{"getPromptResult", `{}`, "no messages"},
		{"getPromptResult", `{"messages":null,"description":"d"}`, "no messages"},
		{"getPromptResult", `{"messages":{}}`, "messages is not a list"},
		{"readResourceResult", `{}`, "no contents"},
		{"readResourceResult", `{"contents":null}`, "no contents"},
		{"readResourceResult", `{"contents":"x"}`, "contents is not a list"},
		{"completeResult", `{}`, "no completion"},
		{"completeResult", `{"completion":null}`, "no completion"},
		{"completeResult", `{"completion":[]}`, "completion is not an object"},
		{"completeResult", `{"completion":{"values":"x"}}`, "completion.values is not a list"},
		{"inputRequired", `{}`, "neither inputRequests nor requestState"},
		{"inputRequired", `{"inputRequests":{},"requestState":null}`, "neither"},
		{"inputRequired", `{"inputRequests":[]}`, "neither"},
		{"task", `{}`, "without taskId"},
		{"task", `{"taskId":7}`, "without taskId"},
	} {
		if got := problem(t, c.name, c.raw); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: problem %q, want one with %q", c.name, c.raw, got, c.want)
		}
	}
}

func TestSmallResultsAreAnswers(t *testing.T) {
	for name, results := range map[string][]string{
		"toolResult":         {`{"content":[]}`, `{"content":[null]}`, `{"structuredContent":false}`, `{"content":null,"structuredContent":{}}`, `{"isError":true}`},
		"getPromptResult":    {`{"messages":[]}`},
		"readResourceResult": {`{"contents":[]}`},
		"completeResult":     {`{"completion":{"values":[]}}`, `{"completion":{"values":null}}`, `{"completion":{}}`},
		"inputRequired":      {`{"requestState":""}`, `{"inputRequests":{"a":{}}}`},
		"task":               {`{"taskId":"1"}`},
	} {
		for _, raw := range results {
			if got := problem(t, name, raw); got != "" {
				t.Errorf("%s %s: problem %q", name, raw, got)
			}
		}
	}
}

func TestBrokenJSONIsNotCalledIncomplete(t *testing.T) {
	for _, c := range strict {
		for _, raw := range []string{`{`, `{"content":`, `{"x":1}}`, `[]`} {
			_, err := c.convert([]byte(raw), 0)
			if form, ok := errors.AsType[*FormError](err); err == nil || ok && raw != `{"x":1}}` {
				t.Errorf("%s %s: %v, %v", c.name, raw, err, form)
			}
		}
	}
}

func TestAResultNestedTooDeepIsCalledThat(t *testing.T) {
	raw := `{"content":[],"structuredContent":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`
	if got := problem(t, "toolResult", raw); !strings.Contains(got, "nested deeper than 10000 levels") {
		t.Errorf("problem %q", got)
	}
}

func TestAListKeepsTheItemsThatFit(t *testing.T) {
	completion, err := CompleteResult([]byte(`{"completion":{"values":["a",5,null,"b",{"c":1}]}}`), textFormat)
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.CompleteResponse{Values: []string{"a", "b"}, ExtraJson: new(`{"completion":{"values":["a",5,null,"b",{"c":1}]}}`)}
	if !proto.Equal(want, completion) {
		t.Errorf("got %v, want %v", completion, want)
	}
	prompt, err := GetPromptResult([]byte(`{"messages":["x",{"role":"user","content":{"type":"text","text":"hi"}}]}`), textFormat)
	if err != nil {
		t.Fatal(err)
	}
	if len(prompt.GetMessages()) != 1 || prompt.GetMessages()[0].GetContent().GetText().GetText() != "hi" || !strings.Contains(prompt.GetExtraJson(), `["x",`) {
		t.Errorf("got %v", prompt)
	}
	questions, err := InputRequired([]byte(`{"inputRequests":{"bad":1,"good":{"method":"roots/list"}}}`), textFormat)
	if err != nil {
		t.Fatal(err)
	}
	if len(questions.GetInputRequests()) != 1 || questions.GetInputRequests()[0].GetId() != "good" {
		t.Errorf("got %v", questions)
	}
	tool, err := Tool([]byte(`{"name":"t","icons":[{"src":"s","sizes":["1x1",2]},"x"]}`), textFormat)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1x1"}, tool.GetIcons()[0].GetSizes()); diff != "" {
		t.Error(diff)
	}
}
