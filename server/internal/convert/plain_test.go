package convert

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
)

func TestPlainResultsHaveTheSameBytesOnTheWire(t *testing.T) {
	for _, result := range []string{
		`{"content":[{"type":"text","text":"hello"}]}`,
		`{"content":[]}`,
		`{"content":[{"type":"text","text":""},{"type":"text","text":"\u0000\ud83d é \"\\"}]}`,
		`{"resultType":"complete","isError":false,"content":[{"type":"text","text":"x"}],"_meta":{"a":{"b":[1,2.50]}}}`,
		`{"isError":true,"content":[{"type":"text","text":"x"}],"isError":null}`,
		`{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":12345678901234567890},"more":[1,{"x":"y"}],"content2":null}`,
		` { "content" : [ { "type" : "text" , "text" : "a\nb" } , { "type":"text","text":"c" } ] } `,
		`{"content":[{"type":"text","text":"` + "a\xff" + `"}]}`,
		`{"resultType":"later","content":[{"type":"text","text":"x"}]}`,
		`{"resultType":7,"isError":"yes","_meta":[],"content":[{"type":"text","text":"x"}]}`,
	} {
		if !checkByHand(t, result) {
			t.Errorf("%s was not written by hand", result)
		}
	}
	for size := range 300 {
		for _, end := range []string{"", `\n`, `\u00e9`} {
			checkByHand(t, `{"content":[{"type":"text","text":"`+strings.Repeat("x", size)+end+`"}]}`)
		}
	}
	checkByHand(t, `{"content":[{"type":"text","text":`+strconv.Quote(strings.Repeat("\"a\"\n", largeBytes/8))+`}]}`)
}

func TestResultsThatAreNotPlainAreReadFromTheirStart(t *testing.T) {
	for _, result := range []string{
		`{"content":null,"isError":true}`, `{"content":{},"isError":true}`, `{"isError":true}`, `{}`, `{"content":7}`,
		`{"content":[null,{"type":"text","text":"x"}]}`, `{"content":["x"]}`, `{"content":[{}]}`,
		`{"content":[{"type":"text","text":null}]}`, `{"content":[{"type":"text"}]}`, `{"content":[{"text":"x","type":"text"}]}`,
		`{"content":[{"type":"text","text":"x","text":"y"}]}`, `{"content":[{"type":"text","text":"x","_meta":{}}]}`,
		`{"content":[{"type":"text","text":"x"},{"type":"image","data":"eA==","mimeType":"a/b"}]}`,
		`{"content":[{"type":"text","text":"x"}],"content":[{"type":"text","text":"y"}]}`,
		`{"content":[{"type":"text","text":"x"}],"content":null}`,
		`{"content":[{"typ\u0065":"text","text":"x"}]}`, `{"c\u006fntent":[{"type":"text","text":"x"}]}`,
	} {
		checkByHand(t, result)
	}
	for _, broken := range []string{``, `[]`, `{"content":[{"type":"text","text":"x"}]`, `{"content":[{"type":"text","text":"x"`, `{"content":[]}x`} {
		if response, err := ToolResponse([]byte(broken), rawjson.Index{}, 0); err == nil {
			t.Errorf("%q became %v", broken, response)
		}
	}
}

func TestALargeResultIsHeldOnce(t *testing.T) {
	text := strconv.Quote(strings.Repeat("\"a\"\n", largeBytes))
	for name, result := range map[string]string{
		"text":               `{"content":[{"type":"text","text":` + text + `}]}`,
		"text with more":     `{"resultType":"complete","content":[{"type":"text","text":` + text + `}],"isError":true,"_meta":{"a":1},"x":[2]}`,
		"structured content": `{"content":[],"structuredContent":{"a":` + text + `},"isError":false}`,
		"and nothing else":   `{"structuredContent":{"a":` + text + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			checkByHand(t, result)
			m, err := jsonrpc.Decode([]byte(`{"id":1,"result":` + result + `}`))
			if err != nil {
				t.Fatal(err)
			}
			response, err := ToolResponse(m.Result, m.Known, textFormat)
			if err != nil {
				t.Fatal(err)
			}
			wire := response.ProtoReflect().GetUnknown()
			if start := bytes.Index(m.Result, wire); start < 0 || &m.Result[start] != &wire[0] {
				t.Error("the response has memory of its own")
			}
		})
	}
	for name, result := range map[string]string{
		"two texts":                `{"content":[{"type":"text","text":` + text + `},{"type":"text","text":` + text + `}]}`,
		"text and document":        `{"content":[{"type":"text","text":` + text + `}],"structuredContent":[` + text + `]}`,
		"invalid UTF-8":            `{"content":[{"type":"text","text":` + text[:len(text)-1] + "\xff\"" + `}]}`,
		"no room for the rest":     `{"_meta":{"a":"` + strings.Repeat("x", 100) + `"},"content":[{"type":"text","text":` + text + `}]}`,
		"null, then a document":    `{"structuredContent":null,"structuredContent":[` + text + `]}`,
		"a document, then nothing": `{"structuredContent":[` + text + `],"structuredContent":null,"content":[]}`,
		"a text that is no text":   `{"content":[{"type":"text","text":[` + text + `]}]}`,
		"broken at its end":        `{"content":[{"type":"text","text":` + text + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.HasPrefix(name, "broken") {
				checkByHand(t, result)
			}
			raw := []byte(result)
			if responseInPlace(raw, rawjson.Index{}, textFormat) != nil || string(raw) != result {
				t.Error("it was written in its place, or changed")
			}
		})
	}
}
