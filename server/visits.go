package server

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// visit is a URL that a user has to visit before a server of 2025-11-25 carries
// out a request (client/elicitation, URL Elicitation Required Error).
type visit struct {
	id     string
	params jsontext.Value // of elicitation/create
}

type visits []visit

// visitsOf reads the visits that the server demands by error -32042; none when
// the error is another one, or does not say it in the way that it must. Servers
// of the modern era have another way.
func visitsOf(err error, s scope) visits {
	e := rpcErrorOf(err, s)
	if e == nil || e.Code != mcpclient.CodeURLElicitation || s.era != mcpclient.EraLegacy {
		return nil
	}
	var out visits
	seen := map[string]bool{}
	for params := range elements(memberOf(e.Data, "elicitations")) {
		id, ok := unquote(memberOf(params, "elicitationId"))
		if mode, _ := unquote(memberOf(params, "mode")); !ok || seen[id] || mode != "url" {
			return nil
		}
		seen[id] = true
		out = append(out, visit{id, params.Clone()})
	}
	return out
}

// result is what a modern server would have answered.
func (v visits) result(era mcpclient.Era) *mcpclient.Result {
	raw := []byte(`{"resultType":"input_required","inputRequests":{`)
	for i, one := range v {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw, _ = jsontext.AppendQuote(raw, one.id) // the only error is invalid UTF-8, which it replaces
		raw = append(raw, `:{"method":"`+methodElicit+`","params":`...)
		raw = append(append(raw, one.params...), '}')
	}
	return &mcpclient.Result{Raw: append(raw, `}}`...), Type: mcpclient.ResultInputRequired, Era: era}
}
