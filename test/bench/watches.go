package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

const (
	watched    = "file:///watched.txt"
	watchesRow = "bridge"
)

// watch is one watch stream of resources.
type watch = grpc.ServerStreamingClient[pb.WatchResourcesResponse]

// measureWatches measures what idle watch streams cost the bridge in memory, and how long a change takes to reach all
// of them. The first figure counts what the process holds right after they were opened, garbage included; the second
// one is after the runtime has had time to give memory back, which it does for an idle heap every two minutes.
func measureWatches(ctx context.Context, r *runner) (rows []row, err error) {
	server := &mcptest.Server{Resources: []mcptest.Resource{{URI: watched, Name: "watched"}}, NoLog: true}
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	web, served := &http.Server{Handler: server}, make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	defer func() {
		err = errors.Join(err, web.Close())
		if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
			err = errors.Join(err, failed)
		}
	}()
	bridge, err := r.startBridge(ctx, nil, fmt.Sprintf("  watched: {url: \"http://%s/mcp\"}\n", listener.Addr()))
	if err != nil {
		return nil, err
	}
	defer bridge.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clients := make([]mcpbridgegrpc.ResourcesServiceClient, r.connections)
	for i := range clients {
		conn, err := dial(bridge.address)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		clients[i] = mcpbridgegrpc.NewResourcesServiceClient(conn)
		if _, err := clients[i].ListResources(ctx, &pb.ListResourcesRequest{}); err != nil {
			return nil, err
		}
	}
	before, _, err := memory(bridge.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	row := row{name: watchesRow, values: map[metric][]float64{}}
	holds := func(m metric) error {
		now, _, err := memory(bridge.cmd.Process.Pid)
		row.values[m] = []float64{float64(now-before) / 1024 / float64(r.watches)}
		return err
	}
	began := time.Now()
	watches := make([]watch, r.watches)
	err = each(len(watches), len(clients), func(i int) (err error) {
		watches[i], err = openWatch(ctx, clients[i%len(clients)])
		return err
	})
	if err != nil {
		return nil, err
	}
	row.values[opening] = []float64{time.Since(began).Seconds()}
	if err := holds(fresh); err != nil {
		return nil, err
	}
	if err := wait(ctx, r.settle); err != nil {
		return nil, err
	}
	if err := holds(settled); err != nil {
		return nil, err
	}
	row.values[upstream] = []float64{float64(server.Subscriptions())} // those of the lists included
	began = time.Now()
	server.Notify("notifications/resources/updated", map[string]any{"uri": watched})
	err = each(len(watches), len(watches), func(i int) error { return changed(watches[i]) })
	row.values[reaching] = []float64{time.Since(began).Seconds() * 1000}
	return append(rows, row), err
}

// openWatch opens a stream and waits until it is ready.
func openWatch(ctx context.Context, client mcpbridgegrpc.ResourcesServiceClient) (watch, error) {
	stream, err := client.WatchResources(ctx, &pb.WatchResourcesRequest{Uris: []string{watched}})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err == nil && first.GetReady() == nil {
		err = wrong(first)
	}
	return stream, err
}

// changed waits until the stream has told of a change.
func changed(stream watch) error {
	for {
		event, err := stream.Recv()
		if err != nil || event.GetUpdated() != nil {
			return err
		}
	}
}
