package server

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The statuses of grpc.health.v1.HealthCheckResponse.ServingStatus.
const (
	healthServing        protoreflect.EnumNumber = 1
	healthNotServing     protoreflect.EnumNumber = 2
	healthServiceUnknown protoreflect.EnumNumber = 3
)

// healthFile builds the descriptor of grpc/health/v1/health.proto. It is built
// here, outside the global registry, because the Go package that holds it
// links all of grpc-go, and a second registration of the same file would stop
// every program that links both.
func healthFile() (protoreflect.FileDescriptor, error) {
	text, message, enum := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_TYPE_ENUM
	one, many := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, typeName string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, JsonName: &name, Number: &number, Type: &kind, Label: &label}
		if typeName != "" {
			f.TypeName = &typeName
		}
		return f
	}
	value := func(name string, number int32) *descriptorpb.EnumValueDescriptorProto {
		return &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: &number}
	}
	method := func(name, in, out string, stream bool) *descriptorpb.MethodDescriptorProto {
		m := &descriptorpb.MethodDescriptorProto{Name: &name, InputType: new(".grpc.health.v1." + in), OutputType: new(".grpc.health.v1." + out)}
		if stream {
			m.ServerStreaming = new(true)
		}
		return m
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name:    new("grpc/health/v1/health.proto"),
		Package: new("grpc.health.v1"),
		Syntax:  new("proto3"),
		Options: &descriptorpb.FileOptions{
			CsharpNamespace:    new("Grpc.Health.V1"),
			GoPackage:          new("google.golang.org/grpc/health/grpc_health_v1"),
			JavaMultipleFiles:  new(true),
			JavaOuterClassname: new("HealthProto"),
			JavaPackage:        new("io.grpc.health.v1"),
			ObjcClassPrefix:    new("GrpcHealthV1"),
		},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("HealthCheckRequest"), Field: []*descriptorpb.FieldDescriptorProto{field("service", 1, text, one, "")}},
			{
				Name:  new("HealthCheckResponse"),
				Field: []*descriptorpb.FieldDescriptorProto{field("status", 1, enum, one, ".grpc.health.v1.HealthCheckResponse.ServingStatus")},
				EnumType: []*descriptorpb.EnumDescriptorProto{{
					Name: new("ServingStatus"),
					Value: []*descriptorpb.EnumValueDescriptorProto{
						value("UNKNOWN", 0), value("SERVING", 1), value("NOT_SERVING", 2), value("SERVICE_UNKNOWN", 3),
					},
				}},
			},
			{Name: new("HealthListRequest")},
			{
				Name:  new("HealthListResponse"),
				Field: []*descriptorpb.FieldDescriptorProto{field("statuses", 1, message, many, ".grpc.health.v1.HealthListResponse.StatusesEntry")},
				NestedType: []*descriptorpb.DescriptorProto{{
					Name: new("StatusesEntry"),
					Field: []*descriptorpb.FieldDescriptorProto{
						field("key", 1, text, one, ""),
						field("value", 2, message, one, ".grpc.health.v1.HealthCheckResponse"),
					},
					Options: &descriptorpb.MessageOptions{MapEntry: new(true)},
				}},
			},
		},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: new("Health"),
			Method: []*descriptorpb.MethodDescriptorProto{
				method("Check", "HealthCheckRequest", "HealthCheckResponse", false),
				method("List", "HealthListRequest", "HealthListResponse", false),
				method("Watch", "HealthCheckRequest", "HealthCheckResponse", true),
			},
		}},
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("server: build grpc.health.v1: %w", err)
	}
	return file, nil
}
