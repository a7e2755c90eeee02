package transport

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// oldServer is a server of the HTTP+SSE transport. It answers requests with
// {} on the newest stream; the fields change that.
type oldServer struct {
	endpoint string                                           // "" = /message?sessionId=N
	early    string                                           // raw events before the endpoint event
	post     func(http.ResponseWriter, *jsonrpc.Message) bool // false = the POST has been answered
	put      func(http.ResponseWriter, *http.Request)         // answers a POST to the URL of the stream; nil = 404
	get      func(http.ResponseWriter, *http.Request)         // answers the GET; nil = a stream

	mu      sync.Mutex // guards what follows
	log     []string
	headers http.Header // of the last POST
	streams int
	send    chan string   // raw events for the newest stream
	cut     chan struct{} // closed to end it
}

func (o *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := readRequest(r)
	o.mu.Lock()
	o.log = append(o.log, r.Method+" "+r.URL.RequestURI()+" "+m.Method)
	o.mu.Unlock()
	if r.Method == http.MethodGet {
		if o.get != nil {
			o.get(w, r)
			return
		}
		o.stream(w, r)
		return
	}
	if r.URL.Path == "/sse" && r.URL.RawQuery == "" {
		if o.put == nil {
			http.NotFound(w, r)
			return
		}
		o.put(w, r)
		return
	}
	o.mu.Lock()
	o.headers = r.Header.Clone()
	o.mu.Unlock()
	if o.post != nil && !o.post(w, m) {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	say(w, "Accepted")
	if m.Kind == jsonrpc.Request {
		o.event(string(jsonrpc.AppendResult(nil, m.ID, nil)))
	}
}

func (o *oldServer) stream(w http.ResponseWriter, r *http.Request) {
	send, cut := make(chan string, 100), make(chan struct{})
	o.mu.Lock()
	o.streams++
	n := o.streams
	o.send, o.cut = send, cut
	o.mu.Unlock()
	endpoint := o.endpoint
	if endpoint == "" {
		endpoint = fmt.Sprintf("/message?sessionId=%d", n)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Mcp-Session-Id", "never")
	say(w, "%sevent: endpoint\ndata: %s\n\n", o.early, endpoint)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case raw := <-send:
			say(w, "%s", raw)
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// event sends one message event on the newest stream.
func (o *oldServer) event(data string) { o.raw("event: message\ndata: " + data + "\n\n") }

func (o *oldServer) raw(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send <- text
}

// restart ends the newest stream.
func (o *oldServer) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.cut)
}

func (o *oldServer) requests() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.log, "\n")
}

func (o *oldServer) posted() http.Header {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.headers
}
