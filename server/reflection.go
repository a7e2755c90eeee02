package server

import (
	"errors"
	"fmt"

	"connectrpc.com/connect/v2"
	"connectrpc.com/grpcreflect/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// registerReflection registers gRPC reflection v1 and v1alpha for everything
// on the server, and for the messages that errors carry. Nothing else that is
// linked into the program is shown. It must be the last registration.
func registerReflection(server *connect.Server) error {
	files := &protoregistry.Files{}
	grpcreflect.Register(server, grpcreflect.WithDescriptorResolver(files))
	roots := []protoreflect.FileDescriptor{
		pb.File_mcpbridge_v1_errors_proto,
		(&errdetails.ErrorInfo{}).ProtoReflect().Descriptor().ParentFile(),
	}
	for spec := range server.Specs() {
		method, ok := spec.Schema.(protoreflect.MethodDescriptor)
		if !ok {
			return fmt.Errorf("server: %s has no descriptor for reflection", spec.Procedure)
		}
		roots = append(roots, method.ParentFile())
	}
	for _, root := range roots {
		if err := addFile(files, root); err != nil {
			return fmt.Errorf("server: prepare reflection: %w", err)
		}
	}
	return nil
}

// addFile adds a file after those it imports.
func addFile(files *protoregistry.Files, file protoreflect.FileDescriptor) error {
	if _, err := files.FindFileByPath(file.Path()); err == nil || !errors.Is(err, protoregistry.NotFound) {
		return err
	}
	for i := range file.Imports().Len() {
		if err := addFile(files, file.Imports().Get(i).FileDescriptor); err != nil {
			return err
		}
	}
	return files.RegisterFile(file)
}
