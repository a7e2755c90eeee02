package server

import (
	"encoding/base64"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
)

// Headers that the protocols define.
const (
	headerConnectTimeout = "Connect-Timeout-Ms"
	headerConnectVersion = "Connect-Protocol-Version"
	headerGRPCTimeout    = "Grpc-Timeout"
	gzipName             = "gzip" // the one compression connecthttp has without options
)

// wire is a protocol, as far as its headers differ.
type wire int

const (
	wireUnknown wire = iota
	wireConnect
	wireConnectStream
	wireGRPC
	wireGRPCWeb
)

func (w wire) name() string {
	switch w {
	case wireConnect, wireConnectStream:
		return connect.ProtocolNameConnect
	case wireGRPC:
		return connect.ProtocolNameGRPC
	case wireGRPCWeb:
		return connect.ProtocolNameGRPCWeb
	case wireUnknown:
	}
	return "unknown"
}

// protocolOf tells the protocol by method and content type. Whether they are
// right for the procedure is for connecthttp to say.
func protocolOf(req *http.Request, unary bool) wire {
	if req.Method == http.MethodGet && unary {
		return wireConnect
	}
	media, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case req.Method != http.MethodPost:
	case strings.HasPrefix(media, "application/grpc-web"):
		return wireGRPCWeb
	case strings.HasPrefix(media, "application/grpc"):
		return wireGRPC
	case strings.HasPrefix(media, "application/connect+"):
		return wireConnectStream
	case strings.HasPrefix(media, "application/"):
		return wireConnect
	}
	return wireUnknown
}

// refusal is a request that does not get as far as a call.
type refusal struct {
	*failure

	header string // the answer's header that names what compression is possible; "" = none
}

// preflight checks what the protocols say in headers and query, which
// connecthttp refuses with errors of its own. It returns the caller's timeout;
// nil = none. Values are not repeated in texts, since they are the caller's.
func preflight(req *http.Request, unary bool) (*time.Duration, *refusal) {
	protocol := protocolOf(req, unary)
	var timeout *time.Duration
	var bad *failure
	encoding := "Grpc-Encoding"
	accepts := "Grpc-Accept-Encoding"
	switch protocol {
	case wireUnknown:
		return nil, nil
	case wireGRPC, wireGRPCWeb:
		timeout, bad = grpcTimeout(req.Header.Get(headerGRPCTimeout))
	case wireConnect, wireConnectStream:
		encoding, accepts = "Content-Encoding", "Accept-Encoding"
		if protocol == wireConnectStream {
			encoding, accepts = "Connect-Content-Encoding", "Connect-Accept-Encoding"
		}
		timeout, bad = connectTimeout(req.Header.Get(headerConnectTimeout))
	}
	if bad != nil {
		return nil, &refusal{failure: bad}
	}
	compression := req.Header.Get(encoding)
	if req.Method == http.MethodGet {
		query := req.URL.Query()
		if bad := checkQuery(query); bad != nil {
			return timeout, &refusal{failure: bad}
		}
		encoding, compression = "compression", query.Get("compression")
	} else if version := req.Header.Get(headerConnectVersion); protocol != wireGRPC && protocol != wireGRPCWeb && version != "" && version != "1" {
		return timeout, &refusal{failure: refuseField(reasonInvalidParams, strings.ToLower(headerConnectVersion), `is not a version of the Connect protocol that this bridge speaks; use "1", or leave the header out`)}
	}
	if compression != "" && compression != connect.CompressionNameIdentity && compression != gzipName {
		f := refuseField(reasonInvalidParams, strings.ToLower(encoding), "names a compression that this bridge does not have; use gzip or identity")
		f.code = connect.CodeUnimplemented // as the protocols require
		return timeout, &refusal{failure: f, header: accepts}
	}
	return timeout, nil
}

// checkQuery checks the query of a Connect GET. A missing encoding is left to
// connecthttp, whose status for it is special.
func checkQuery(query url.Values) *failure {
	if version := query.Get("connect"); version != "" && version != "v1" {
		return refuseField(reasonInvalidParams, "connect", "is not a version of the Connect protocol that this bridge speaks; use connect=v1 in the query, or leave it out")
	}
	if query.Get("encoding") == "" {
		return nil
	}
	if !query.Has("message") {
		return refuseField(reasonInvalidParams, "message", "is missing in the query; give the request there, message={} for one without fields")
	}
	if query.Get("base64") != "1" {
		return nil
	}
	message := query.Get("message")
	encoding := base64.URLEncoding
	if len(message)%4 != 0 {
		encoding = base64.RawURLEncoding
	}
	if _, err := encoding.DecodeString(message); err != nil {
		return refuseField(reasonInvalidParams, "message", "is not URL-safe Base64, as base64=1 in the query says; encode it with the alphabet that has - and _")
	}
	return nil
}

// connectTimeout reads Connect-Timeout-Ms: at most ten digits.
func connectTimeout(text string) (*time.Duration, *failure) {
	if text == "" {
		return nil, nil
	}
	n, ok := digits(text, 10)
	if !ok {
		return nil, refuseField(reasonInvalidParams, strings.ToLower(headerConnectTimeout), "is not a number of milliseconds with at most ten digits; leave the header out for no timeout")
	}
	return new(time.Duration(n) * time.Millisecond), nil
}

// grpcTimeout reads grpc-timeout: at most eight digits and a unit.
func grpcTimeout(text string) (*time.Duration, *failure) {
	if text == "" {
		return nil, nil
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	unit := units[text[len(text)-1]]
	n, ok := digits(text[:len(text)-1], 8)
	if !ok || unit == 0 {
		return nil, refuseField(reasonInvalidParams, strings.ToLower(headerGRPCTimeout), "is not a number of at most eight digits followed by one of the units H, M, S, m, u, n; leave the header out for no timeout")
	}
	if n > math.MaxInt64/int64(unit) {
		return nil, nil // beyond 292 years it is none
	}
	return new(time.Duration(n) * unit), nil
}

// digits reads a number that is digits alone.
func digits(text string, most int) (int64, bool) {
	if text == "" || len(text) > most || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
