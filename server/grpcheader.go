package server

import (
	"slices"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	grpcContentType = "application/grpc"
	binarySuffix    = "-bin" // of headers whose values are in Base64 on the wire
)

// setHeaders sets the headers of a request. grpc-go decodes binary ones, which
// handlers expect as they are on the wire. The values of md are changed.
func setHeaders(header *connect.Header, md metadata.MD) {
	for key, values := range md {
		switch {
		case key == ":authority":
			key = "Host"
		case strings.HasPrefix(key, ":"):
			continue
		case strings.HasSuffix(key, binarySuffix):
			for i, value := range values {
				values[i] = connect.EncodeBinaryHeader([]byte(value))
			}
		}
		header.SetValues(key, values)
	}
}

// metadataOf is the reverse for headers and trailers of an answer.
func metadataOf(header *connect.Header) metadata.MD {
	if header.Len() == 0 {
		return nil
	}
	md := make(metadata.MD, header.Len())
	for key, values := range header.All() {
		key = strings.ToLower(key)
		if strings.HasSuffix(key, binarySuffix) {
			values = slices.Clone(values)
			for i, value := range values {
				if raw, err := connect.DecodeBinaryHeader(value); err == nil {
					values[i] = string(raw)
				}
			}
		}
		md[key] = values
	}
	return md
}

// grpcStatus is an error as grpc-go sends it.
func grpcStatus(rpc *connect.Error) error {
	s := &spb.Status{Code: int32(rpc.Code()), Message: rpc.Message()} //nolint:gosec // there are 16 codes
	for _, detail := range rpc.Details() {
		s.Details = append(s.Details, connectproto.ErrorDetailToAny(detail))
	}
	return status.ErrorProto(s)
}
