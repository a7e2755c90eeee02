package e2e

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1/mcpbridgev1connect"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

// agent is a service that calls the bridge, with the tracing that such services have: the service "agent".
type agent struct {
	provider   *sdktrace.TracerProvider
	propagator propagation.TextMapPropagator
}

// newAgent exports each span as it ends.
func newAgent(t *testing.T, to tracer) *agent {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(to.endpoint()+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "agent"))))
	t.Cleanup(func() { provider.Shutdown(context.WithoutCancel(t.Context())) })
	return &agent{provider, propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})}
}

// turn is a piece of the agent's work, in a trace of its own whose id it returns.
func (a *agent) turn(t *testing.T, work func(ctx context.Context)) string {
	t.Helper()
	members, err := baggage.Parse(callerBaggage)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(baggage.ContextWithBaggage(t.Context(), members), patience)
	defer cancel()
	ctx, span := a.provider.Tracer("e2e").Start(ctx, "agent turn")
	defer span.End()
	work(ctx)
	return span.SpanContext().TraceID().String()
}

// agentClient is how the agent calls.
type agentClient struct {
	call func(context.Context, *pb.CallToolRequest) (*pb.CallToolResponse, error)
	read func(context.Context, *pb.ReadResourceRequest) (*pb.ReadResourceResponse, error)
	// failed is what its span says of a call that ended in a code.
	failed func(code string) string
}

// overGRPC calls with grpc-go.
func (a *agent) overGRPC(t *testing.T, b *bridge) agentClient {
	t.Helper()
	conn := b.grpc(t, grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(a.provider), otelgrpc.WithPropagators(a.propagator))))
	tools, resources := mcpbridgegrpc.NewToolsServiceClient(conn), mcpbridgegrpc.NewResourcesServiceClient(conn)
	return agentClient{
		call: func(ctx context.Context, r *pb.CallToolRequest) (*pb.CallToolResponse, error) {
			return tools.CallTool(ctx, r)
		},
		read: func(ctx context.Context, r *pb.ReadResourceRequest) (*pb.ReadResourceResponse, error) {
			return resources.ReadResource(ctx, r)
		},
		failed: func(string) string { return " FAILED" },
	}
}

// overConnect calls with the Connect protocol.
func (a *agent) overConnect(t *testing.T, b *bridge) agentClient {
	t.Helper()
	interceptor, err := otelconnect.NewClientInterceptor(otelconnect.WithTracerProvider(a.provider), otelconnect.WithPropagator(a.propagator))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, "http://"+b.addr), interceptor)
	return agentClient{
		call:   mcpbridgev1connect.NewToolsServiceClient(client).CallTool,
		read:   mcpbridgev1connect.NewResourcesServiceClient(client).ReadResource,
		failed: func(code string) string { return " error=" + code + " FAILED" },
	}
}

// codeOf is the code of an error of either client.
func codeOf(err error) codes.Code {
	if found := asConnect(err); found != nil {
		return codes.Code(found.Code())
	}
	return status.Code(err)
}

// answerTo makes a call whose response asks into the one that goes on.
func answerTo(t *testing.T, call *pb.CallToolRequest, response *pb.CallToolResponse, err error) {
	t.Helper()
	if err != nil || response.GetInputRequired() == nil {
		t.Fatalf("%v, %s; want a question", response, explain(err))
	}
	call.RequestState = response.GetInputRequired().RequestState
	call.InputResponses = map[string]*pb.InputResponse{}
	for _, question := range response.GetInputRequired().GetInputRequests() {
		call.InputResponses[question.GetId()] = &pb.InputResponse{ResultJson: new(accept)}
	}
}
