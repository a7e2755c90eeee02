package convert

import (
	"strconv"
	"strings"
	"testing"

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
