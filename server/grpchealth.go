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
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
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
func callable(state pool.State) bool {
	switch state {
	case pool.StateReady, pool.StateSuspect, pool.StateIdle:
		return true
	case pool.StateConnecting, pool.StateReconnecting, pool.StateDraining, pool.StateClosed:
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

// watch sends the state now and every change of it, in order. A service that is
// unknown may become known when the configuration is reloaded.
func (h *grpcHealth) watch(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	service, err := h.receive(stream)
	if err != nil {
		return err
	}
	last := protoreflect.EnumNumber(-1)
	tell := func(now protoreflect.EnumNumber) error {
		if now == last {
			return nil
		}
		last = now
		return stream.Send(h.message(now))
	}
	err = h.follow(ctx, service, tell)
	if err == nil || ctx.Err() == nil {
		return err
	}
	if err := tell(h.status(service)); err != nil { // a drain is told before the stream ends
		return err
	}
	return ctx.Err()
}

// follow tells of a service until the call or the set of targets ends.
func (h *grpcHealth) follow(ctx context.Context, service string, tell func(protoreflect.EnumNumber) error) error {
	name, isTarget := strings.CutPrefix(service, targetPrefix)
	if !isTarget || name == "" { // nothing changes before the drain
		if err := tell(h.status(service)); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	watcher := h.targets.Watch(name)
	defer watcher.Close()
	now := healthServiceUnknown
	for _, e := range watcher.Initial() {
		now = h.statusOf(e)
	}
	for {
		if err := tell(now); err != nil {
			return err
		}
		e, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		now = h.statusOf(e)
	}
}

// statusOf is what an event means to who asks for the target's health.
func (h *grpcHealth) statusOf(e targets.Event) protoreflect.EnumNumber {
	switch {
	case e.Removed:
		return healthServiceUnknown
	case h.draining.Err() == nil && callable(e.Status.State):
		return healthServing
	}
	return healthNotServing
}
