package server

import (
	"slices"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/grpcreflect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestReflectionListsAndDescribesEveryService(t *testing.T) {
	b := one(t, shop(mcptest.Modern))
	for _, protocol := range listenersForGRPC() {
		t.Run(protocol, func(t *testing.T) { checkReflection(t, b.client(protocol)) })
	}
}

func checkReflection(t *testing.T, client *connect.Client) {
	t.Helper()
	stream := grpcreflect.NewClient(client).NewStream(t.Context())
	defer func() {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}()
	services, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(services)
	want := []protoreflect.FullName{
		"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
		"mcpbridge.v1.CompletionService", "mcpbridge.v1.HealthService", "mcpbridge.v1.PromptsService", "mcpbridge.v1.ResourcesService", "mcpbridge.v1.TasksService", "mcpbridge.v1.ToolsService",
	}
	if diff := cmp.Diff(want, services); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	for _, symbol := range append(services, "google.rpc.ErrorInfo", "mcpbridge.v1.JsonRpcError", "google.protobuf.Struct") {
		got, err := stream.FileContainingSymbol(symbol)
		if err != nil {
			t.Errorf("%s: %v", symbol, err)
		}
		for _, file := range got {
			files[file.GetName()] = file
		}
	}
	if _, err := stream.FileByFilename("grpc/health/v1/health.proto"); err != nil {
		t.Error(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, file := range files {
		set.File = append(set.File, file)
	}
	all, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("the files do not fit together: %v", err)
	}
	for _, service := range services {
		if _, err := all.FindDescriptorByName(service); err != nil {
			t.Errorf("%s: %v", service, err)
		}
	}
	if _, err := stream.FileContainingSymbol("connectext.grpc.reflection.v1.ServerReflection"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v, want types of the program's insides to be unknown", err)
	}
}

// TestTheHealthSchemaIsTheOfficialOne compares the wire form with what
// grpc-go's generated code holds (grpc/health/v1/health.proto, 2025).
func TestTheHealthSchemaIsTheOfficialOne(t *testing.T) {
	file, err := healthFile()
	if err != nil {
		t.Fatal(err)
	}
	got := protodesc.ToFileDescriptorProto(file)
	if got.GetName() != "grpc/health/v1/health.proto" || got.GetPackage() != "grpc.health.v1" {
		t.Errorf("file %s, package %s", got.GetName(), got.GetPackage())
	}
	fields := map[string]int32{}
	for _, message := range got.GetMessageType() {
		for _, field := range message.GetField() {
			fields[message.GetName()+"."+field.GetName()] = field.GetNumber()
		}
	}
	want := map[string]int32{"HealthCheckRequest.service": 1, "HealthCheckResponse.status": 1, "HealthListResponse.statuses": 1}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Error(diff)
	}
	values := map[string]int32{}
	for _, value := range got.GetMessageType()[1].GetEnumType()[0].GetValue() {
		values[value.GetName()] = value.GetNumber()
	}
	if diff := cmp.Diff(map[string]int32{"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}, values); diff != "" {
		t.Error(diff)
	}
	if !proto.Equal(got.GetMessageType()[3].GetNestedType()[0].GetOptions(), &descriptorpb.MessageOptions{MapEntry: new(true)}) {
		t.Error("statuses is not a map")
	}
}
