package mcpclient_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// listed answers tools/list by one tool of the given taskSupport; "" = none.
func listed(name, support string) mcptest.Handler {
	execution := ""
	if support != "" {
		execution = `,"execution":{"taskSupport":"` + support + `"}`
	}
	return mcptest.Respond(mcptest.Raw(`{"tools":[{"name":"` + name + `","inputSchema":{"type":"object"}` + execution + `}]}`))
}

func TestAToolThatTheListWasWrongAboutIsCalledOnceMoreTheOtherWay(t *testing.T) {
	for name, tc := range map[string]struct {
		tool    string
		list    []mcptest.Handler // nil = as it is
		call    mcptest.Handler   // nil = as it is
		code    string            // of the error; "" = a result
		calls   int
		lists   int
		tasked  string // the task member of the last call
		isError bool
	}{
		"now it demands a task":               {tool: "dig", list: []mcptest.Handler{listed("dig", "")}, calls: 2, lists: 2, tasked: "{}"},
		"a tool that is new":                  {tool: "dig", list: []mcptest.Handler{listed("other", "")}, calls: 2, lists: 2, tasked: "{}"},
		"now it forbids a task":               {tool: "never", list: []mcptest.Handler{listed("never", "required")}, calls: 2, lists: 2},
		"now it need not be one":              {tool: "either", list: []mcptest.Handler{listed("either", "required")}, calls: 1, lists: 1, tasked: "{}"},
		"the code of the error section":       {tool: "dig", list: []mcptest.Handler{listed("dig", "")}, call: mcptest.Sequence(mcptest.Fail(-32600, "Task augmentation required for tools/call requests", nil, 0), nil), calls: 2, lists: 2, tasked: "{}"},
		"a task refused as an invalid one":    {tool: "dig", call: mcptest.Fail(-32600, "no", nil, 0), code: "-32600", calls: 1, lists: 1, tasked: "{}"},
		"another error":                       {tool: "dig", list: []mcptest.Handler{listed("dig", "")}, call: mcptest.Fail(-32603, "no", nil, 0), code: "-32603", calls: 1, lists: 1},
		"the list says the same again":        {tool: "echo", call: mcptest.Fail(-32601, "no", nil, 0), code: "-32601", calls: 1, lists: 2},
		"a list of this moment":               {tool: "echo", call: mcptest.Fail(-32601, "no", nil, 0), code: "-32601", calls: 1, lists: 1},
		"a tool that does not exist":          {tool: "nothing", call: mcptest.Fail(-32601, "no", nil, 0), code: "-32601", calls: 1, lists: 2},
		"a list that cannot be had any more":  {tool: "dig", list: []mcptest.Handler{listed("dig", ""), mcptest.Fail(-32603, "no", nil, 0)}, code: "-32601", calls: 1, lists: 2},
		"a list that does not come any more":  {tool: "dig", list: []mcptest.Handler{listed("dig", ""), mcptest.Silence()}, code: "-32601", calls: 1, lists: 2},
		"a tool that is refused again, twice": {tool: "dig", list: []mcptest.Handler{listed("dig", "")}, call: mcptest.Fail(-32601, "no", nil, 0), code: "-32601", calls: 2, lists: 2, tasked: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := laborious(done())
				s.Handle = map[string]mcptest.Handler{}
				if tc.list != nil {
					s.Handle["tools/list"] = mcptest.Sequence(append(tc.list, nil)...)
					if len(tc.list) == 2 {
						s.Handle["tools/list"] = mcptest.Sequence(tc.list...)
					}
				}
				if tc.call != nil {
					s.Handle["tools/call"] = tc.call
				}
				c := connect(t, s, quiet())
				if _, err := c.ListTools(t.Context()); err != nil {
					t.Fatal(err)
				}
				if name != "a list of this moment" {
					time.Sleep(5 * time.Second) // fake time: the list grows old
				}
				_, err := c.CallTool(t.Context(), tc.tool, nil, nil)
				if tc.code == "" && err != nil {
					t.Fatal(err)
				}
				if tc.code != "" {
					_ = wantKind(t, err, mcpclient.KindRPC, tc.code)
				}
				wantCounts(t, s, map[string]int{"tools/call": tc.calls, "tools/list": tc.lists})
				calls := s.Entries("tools/call")
				if got := param(t, calls[len(calls)-1], "task"); got != tc.tasked {
					t.Errorf("the last call is the task %q, want %q", got, tc.tasked)
				}
			})
		})
	}
}

func TestAListThatCannotBeHadDoesNotStopAToolCall(t *testing.T) {
	for name, list := range map[string]mcptest.Handler{"an error": mcptest.Fail(-32603, "no", nil, 0), "silence": mcptest.Silence()} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, connect func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
				s := laborious(done())
				s.Handle = map[string]mcptest.Handler{"tools/list": list}
				c := connect(t, s, quiet())
				start := time.Now()
				for range 3 {
					if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("it took %v", took)
				}
				wantCounts(t, s, map[string]int{"tools/list": 1, "tools/call": 3})
			})
		})
	}
}

func TestOnlyARequiredTaskSupportMakesATask(t *testing.T) {
	for name, tc := range map[string]struct {
		tool string
		want string
	}{
		"required":        {`{"name":"x","execution":{"taskSupport":"required"}}`, "{}"},
		"in another case": {`{"name":"x","execution":{"taskSupport":"Required"}}`, ""},
		"no text":         {`{"name":"x","execution":{"taskSupport":true}}`, ""},
		"elsewhere":       {`{"name":"x","taskSupport":"required"}`, ""},
		"no object":       {`{"name":"x","execution":"taskSupport"}`, ""},
		"null":            {`{"name":"x","execution":{"taskSupport":null}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := laborious(done())
				s.Handle = map[string]mcptest.Handler{
					"tools/list": mcptest.Respond(mcptest.Raw(`{"tools":[` + tc.tool + `]}`)),
					"tools/call": done(),
				}
				c := overPipe(t, s, quiet())
				if _, err := c.CallTool(t.Context(), "x", jsontext.Value("{}"), nil); err != nil {
					t.Fatal(err)
				}
				if got := param(t, s.Entries("tools/call")[0], "task"); got != tc.want {
					t.Errorf("the task is %q, want %q", got, tc.want)
				}
				if strings.Contains(name, "required") && s.Count("tasks/get") != 0 {
					t.Error("a plain result is no task")
				}
			})
		})
	}
}
