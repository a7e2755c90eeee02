package mcptest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// ListenOptions script subscriptions/listen. The zero value acknowledges the
// whole filter and stays open.
type ListenOptions struct {
	// Reject answers with this error instead.
	Reject *Error
	// NoAck leaves the acknowledgement out; AckDelay sends it later.
	NoAck    bool
	AckDelay time.Duration
	// Subset replaces the acknowledged filter, a JSON object; "" = all.
	Subset string
	// Flood sends so many tools/list_changed right behind the acknowledgement.
	Flood int
	// Foreign sends a notification with an id nobody has, and one without any,
	// behind the acknowledgement.
	Foreign bool
	// End ends each subscription right behind that: "graceful" with a result,
	// "drop" by breaking the stream, "error" with an error; "" = it stays open.
	End string
	// EndAfter delays End.
	EndAfter time.Duration
}

// subscription is one open subscriptions/listen.
type subscription struct {
	r      *Request
	filter struct {
		Tools     bool     `json:"toolsListChanged"`
		Prompts   bool     `json:"promptsListChanged"`
		Resources bool     `json:"resourcesListChanged"`
		URIs      []string `json:"resourceSubscriptions"`
		Tasks     []string `json:"taskIds"`
	}
	ended chan string // how to end; buffered
	once  sync.Once
}

func (sub *subscription) end(how string) { sub.once.Do(func() { sub.ended <- how }) }

func (sub *subscription) wants(method, uri string) bool {
	switch method {
	case "notifications/tools/list_changed":
		return sub.filter.Tools
	case "notifications/prompts/list_changed":
		return sub.filter.Prompts
	case "notifications/resources/list_changed":
		return sub.filter.Resources
	case "notifications/resources/updated":
		return slices.Contains(sub.filter.URIs, uri)
	case "notifications/tasks":
		return slices.Contains(sub.filter.Tasks, uri)
	}
	return false
}

func (sub *subscription) send(method string, params json.RawMessage) {
	if params == nil {
		params = json.RawMessage("{}")
	}
	sub.r.out.send(notification(method, with(params, "_meta", `{"io.modelcontextprotocol/subscriptionId":`+string(sub.r.ID)+`}`)))
}

// acknowledge sends what comes first.
func (sub *subscription) acknowledge(filter json.RawMessage) {
	o := sub.r.server.Listen
	if o.Subset != "" {
		filter = json.RawMessage(o.Subset)
	}
	if !o.NoAck {
		sub.send("notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":`+string(filter)+`}`))
	}
	for range o.Flood {
		sub.send("notifications/tools/list_changed", nil)
	}
	if o.Foreign {
		sub.r.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"nobody's"}}}`)
		sub.r.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
}

// listen serves subscriptions/listen until the client cancels it.
func listen(ctx context.Context, r *Request) (any, error) {
	s := r.server
	o := s.Listen
	sub := &subscription{r: r, ended: make(chan string, 1)}
	filter := r.Param("notifications")
	if err := json.Unmarshal(filter, &sub.filter); err != nil {
		s.violate("subscriptions/listen: params.notifications is no filter: %v", err)
		return nil, &Error{Code: -32602, Message: "notifications is required"}
	}
	if o.Reject != nil {
		return nil, o.Reject
	}
	if o.AckDelay > 0 && !pause(ctx, o.AckDelay) {
		return nil, ErrSilent
	}
	if o.Subset != "" {
		sub.filter.Tools, sub.filter.Prompts, sub.filter.Resources, sub.filter.URIs = false, false, false, nil
		if err := json.Unmarshal([]byte(o.Subset), &sub.filter); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	sub.acknowledge(filter)
	s.subs = append(s.subs, sub)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.subs = slices.DeleteFunc(s.subs, func(o *subscription) bool { return o == sub })
		s.mu.Unlock()
	}()
	if o.End != "" {
		if o.EndAfter > 0 && !pause(ctx, o.EndAfter) {
			return nil, ErrSilent
		}
		sub.end(o.End)
	}
	select {
	case how := <-sub.ended:
		switch how {
		case "drop":
			return nil, ErrHangup
		case "error":
			return nil, &Error{Code: -32603, Message: "the subscription failed"}
		}
		return Raw(`{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(r.ID) + `}}`), nil
	case <-ctx.Done():
		return nil, ErrSilent
	}
}

// pause waits for d; false means that ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// EndSubscriptions ends all modern subscriptions gracefully, with a result.
func (s *Server) EndSubscriptions() { s.endSubscriptions("graceful") }

// DropSubscriptions breaks the streams of all modern subscriptions; over stdio
// that ends the connection.
func (s *Server) DropSubscriptions() { s.endSubscriptions("drop") }

func (s *Server) endSubscriptions(how string) {
	s.mu.Lock()
	subs := slices.Clone(s.subs)
	s.mu.Unlock()
	for _, sub := range subs {
		sub.end(how)
	}
}

// Subscriptions returns how many modern subscriptions are open.
func (s *Server) Subscriptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs)
}
