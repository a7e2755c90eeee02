package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// targetPrefix begins the health service name of a target.
const targetPrefix = "target/"

// grpcHealth is grpc.health.v1.Health. The bridge itself, "" and its service
// names, serves until it drains, whatever its targets do; target/NAME follows
// the target.
type grpcHealth struct {
	targets  *targets.Set
	draining context.Context //nolint:containedctx // ends when the shutdown begins
	services []string
	request  protoreflect.MessageDescriptor
	response protoreflect.MessageDescriptor
	list     protoreflect.MessageDescriptor
}

// registerHealth registers the service for the named services, itself
// included. draining ends when the server begins to shut down.
func registerHealth(draining context.Context, server *connect.Server, set *targets.Set, services []string) error {
	file, err := healthFile()
	if err != nil {
		return err
	}
	service := file.Services().ByName("Health")
	h := &grpcHealth{
		targets: set, draining: draining, services: append(slices.Clone(services), string(service.FullName())),
		request:  file.Messages().ByName("HealthCheckRequest"),
		response: file.Messages().ByName("HealthCheckResponse"),
		list:     file.Messages().ByName("HealthListResponse"),
	}
	register := func(name protoreflect.Name, streamType connect.StreamType, handler connect.ServerFunc) {
		server.Register(connect.Method{
			Spec:    connect.Spec{StreamType: streamType, Procedure: fmt.Sprintf("/%s/%s", service.FullName(), name), Schema: service.Methods().ByName(name)},
			Handler: handler,
		})
	}
	register("Check", connect.StreamTypeUnary, h.check)
	register("List", connect.StreamTypeUnary, h.listAll)
	register("Watch", connect.StreamTypeServer, h.watch)
	return nil
}

// status is the state of one service.
func (h *grpcHealth) status(service string) protoreflect.EnumNumber {
	if name, isTarget := strings.CutPrefix(service, targetPrefix); isTarget && name != "" {
		target, err := h.targets.Get(name)
		if err != nil {
			return healthServiceUnknown
		}
		if h.draining.Err() != nil || !callable(target.Status().State) {
			return healthNotServing
		}
		return healthServing
	}
	if service != "" && !slices.Contains(h.services, service) {
		return healthServiceUnknown
	}
	if h.draining.Err() != nil {
		return healthNotServing
	}
	return healthServing
}

// callable reports whether a call would be sent, connecting first if need be:
// a lazy target is well until it was tried, and a suspect one until it is lost.
func callable(state mcpclient.State) bool {
	switch state {
	case mcpclient.StateReady, mcpclient.StateSuspect, mcpclient.StateIdle:
		return true
	case mcpclient.StateConnecting, mcpclient.StateReconnecting, mcpclient.StateClosed:
	}
	return false
}

func (h *grpcHealth) message(status protoreflect.EnumNumber) proto.Message {
	m := dynamicpb.NewMessage(h.response)
	m.Set(h.response.Fields().ByNumber(1), protoreflect.ValueOfEnum(status))
	return m
}

// receive reads the request and returns the service it asks about.
func (h *grpcHealth) receive(stream connect.ServerStream) (string, error) {
	m := dynamicpb.NewMessage(h.request)
	if err := stream.Receive(m); err != nil {
		return "", err
	}
	return m.Get(h.request.Fields().ByNumber(1)).String(), nil
}

func (h *grpcHealth) check(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
	service, err := h.receive(stream)
	if err != nil {
		return err
	}
	status := h.status(service)
	if status == healthServiceUnknown {
		return refuse(reasonServiceNotFound, fmt.Sprintf("there is no service %s; ask for \"\", a service of this bridge, or %sNAME for one of its targets", quote(service), targetPrefix))
	}
	return stream.Send(h.message(status))
}

func (h *grpcHealth) listAll(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
	if err := stream.Receive(dynamicpb.NewMessage(h.list.ParentFile().Messages().ByName("HealthListRequest"))); err != nil {
		return err
	}
	m := dynamicpb.NewMessage(h.list)
	statuses := m.Mutable(h.list.Fields().ByNumber(1)).Map()
	names := append([]string{""}, h.services...)
	for _, target := range h.targets.All() {
		names = append(names, targetPrefix+target.Name())
	}
	for _, name := range names {
		statuses.Set(protoreflect.ValueOfString(name).MapKey(), protoreflect.ValueOfMessage(h.message(h.status(name)).ProtoReflect()))
	}
	return stream.Send(m)
}

// watch sends the state now and at every change. A service that is unknown may
// become known when the configuration is reloaded.
func (h *grpcHealth) watch(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	service, err := h.receive(stream)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	stop := h.targets.Watch(func(*targets.Target) {
		select {
		case wake <- struct{}{}:
		default: // a look is already due, and it will see this change
		}
	})
	defer stop()
	last := protoreflect.EnumNumber(-1)
	for {
		ended := ctx.Err() != nil // before the look, so that a drain is told first
		if now := h.status(service); now != last {
			if err := stream.Send(h.message(now)); err != nil {
				return err
			}
			last = now
		}
		if ended {
			return ctx.Err()
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}
