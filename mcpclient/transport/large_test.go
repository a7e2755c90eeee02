package transport

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// largeReplies are replies that are checked while they come, and the kind of error they end in; 0 = none.
func largeReplies() map[string]struct {
	body string
	kind ErrorKind
} {
	big := `"` + strings.Repeat(`a line\n`, 3*replyPiece/8) + `"`
	rows := `[` + strings.Repeat(`{"id":1,"name":"a name that is longer than a word"},`, largeReply/50) + `1]`
	return map[string]struct {
		body string
		kind ErrorKind
	}{
		"a text":         {`{"id":1,"result":` + big + `}`, 0},
		"rows":           {` {"id":1,"result":` + rows + `} `, 0},
		"the id last":    {`{"result":{"x":` + big + `,"rows":` + rows + `},"jsonrpc":"2.0","id":1}` + "\n", 0},
		"a mark before":  {bom + `{"id":1,"result":` + big + `}`, 0},
		"a batch":        {`[{"id":1,"result":` + big + `}]`, 0},
		"more behind it": {`{"id":1,"result":` + big + `} {}`, Malformed},
		"cut":            {`{"id":1,"result":` + big, Malformed},
		"no JSON":        {`{"id":1,"result":` + big + `,}`, Malformed},
		"a request":      {`{"id":1,"method":"x","params":` + big + `}`, Malformed},
		"another id":     {`{"id":7,"result":` + big + `}`, Malformed},
		"gzip":           {gzipStart + big, Malformed},
		"nothing":        {strings.Repeat(" ", largeReply), Malformed},
	}
}

func TestLargeRepliesAreReadLikeSmallOnes(t *testing.T) {
	for name, c := range largeReplies() {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", typeJSON)
				w.Header().Set("Content-Length", strconv.Itoa(len(c.body)))
				_, _ = io.WriteString(w, c.body)
			})
			m, err := dialURL(t, server.URL).Call(t.Context(), legacy(1, "tools/call"))
			if c.kind != 0 {
				wantError(t, err, c.kind)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			whole := strings.Trim(strings.TrimPrefix(c.body, bom), "[]")
			want, err := jsonrpc.Decode([]byte(whole))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Result, want.Result) || m.ID != jsonrpc.IntID(1) {
				t.Errorf("id %v, %d bytes, want %d", m.ID, len(m.Result), len(want.Result))
			}
		})
	}
}

func TestALargeReplyThatEndsEarlyIsLost(t *testing.T) {
	body := `{"id":1,"result":"` + strings.Repeat("x", largeReply) + `"}`
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", typeJSON)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
		_, _ = io.WriteString(w, body)
	})
	_, err := dialURL(t, server.URL).Call(t.Context(), legacy(1, "tools/call"))
	wantError(t, err, Lost)
}

func FuzzAGrowingMessageIsTheSameHoweverItIsSplit(f *testing.F) {
	for _, s := range []string{`{"id":1,"result":{"a":["x\u00e9",1]}}`, `{"id":1,"result":"` + strings.Repeat(`x\n`, 200) + `"}`, `{"id":1,"result":[` + strings.Repeat(`"abcdef",`, 300) + `0]}`} {
		f.Add([]byte(s), uint16(1))
		f.Add([]byte(s), uint16(100))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		reply := growing{r: iotest.HalfReader(bytes.NewReader(data)), size: int64(len(data)), limit: -1}
		got, err := jsonrpc.DecodeGrowing(func() ([]byte, bool) {
			more := reply.next(int(size) + 1)
			return reply.data, more
		})
		if err != nil {
			return // it may give up
		}
		want, err := jsonrpc.Decode(data)
		if err != nil {
			t.Fatalf("%q is no message: %v", data, err)
		}
		if got.Kind != want.Kind || got.ID != want.ID || got.Method != want.Method || !bytes.Equal(got.Result, want.Result) || !bytes.Equal(got.Params, want.Params) {
			t.Fatalf("%q became %+v, want %+v", data, got, want)
		}
	})
}
