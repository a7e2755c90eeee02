// Command watchers measures what idle watch streams cost the bridge: memory of its process per stream, for many
// streams over some HTTP/2 connections, and how long a change takes to reach all of them. Run it with
// "go run ./bench/watchers" in the folder test (Linux).
//
// The first number counts what the process holds right after the streams were opened, garbage included; the second one
// is after the runtime has had time to give memory back.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	mcpbridgegrpc "github.com/mcpbridge/mcpbridge/test/gen/mcpbridge/v1"
)

const uri = "file:///watched.txt"

func main() {
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "watchers:", err)
		os.Exit(1)
	}
}

func measure() error {
	streams := flag.Int("streams", 10_000, "watch streams")
	connections := flag.Int("connections", 100, "HTTP/2 connections that carry them")
	settle := flag.Duration("settle", 3*time.Minute, "wait before the second measurement; the runtime collects an idle heap every two minutes")
	limit := flag.Float64("limit", 40, "fail above so many KB a stream in the second measurement; 0 = never")
	bridge := flag.String("bridge", "", "bridge binary; empty builds ../cmd/bridge")
	flag.Parse()

	dir, err := os.MkdirTemp("", "mcpbridge-watchers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *bridge == "" {
		*bridge = filepath.Join(dir, "bridge")
		build := exec.Command("go", "build", "-o", *bridge, "./cmd/bridge")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the bridge (watchers runs in the folder test): %w\n%s", err, out)
		}
	}
	server := &mcptest.Server{Resources: []mcptest.Resource{{URI: uri, Name: "watched"}}, NoLog: true}
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: server}
	go web.Serve(listener)
	defer web.Close()
	config := filepath.Join(dir, "bridge.yaml")
	settings := fmt.Sprintf("log: {level: warn}\ntargets:\n  watched:\n    url: http://%s/mcp\n", listener.Addr())
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return err
	}
	process, address, err := launch(exec.Command(*bridge, "serve", "--config", config, "--listen", "127.0.0.1:0"))
	if err != nil {
		return err
	}
	defer stop(process)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients, err := connect(ctx, address, *connections)
	if err != nil {
		return err
	}
	before, err := resident(process.Process.Pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	watches, err := open(ctx, clients, *streams)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	fresh, err := resident(process.Process.Pid)
	if err != nil {
		return err
	}
	time.Sleep(*settle)
	settled, err := resident(process.Process.Pid)
	if err != nil {
		return err
	}
	upstream := server.Subscriptions()
	begin = time.Now()
	server.Notify("notifications/resources/updated", map[string]any{"uri": uri})
	if err := watches.changed(); err != nil {
		return err
	}
	reached := time.Since(begin)
	each := func(now int) float64 { return float64(now-before) / float64(*streams) }
	fmt.Printf("%d idle watch streams over %d connections\n\n", *streams, *connections)
	fmt.Printf("before                  %8.1f MB\n", float64(before)/1024)
	fmt.Printf("opened in %-8s      %8.1f MB, %.1f KB a stream\n", took.Round(10*time.Millisecond), float64(fresh)/1024, each(fresh))
	fmt.Printf("after %-8s          %8.1f MB, %.1f KB a stream\n", *settle, float64(settled)/1024, each(settled))
	fmt.Printf("subscriptions upstream  %8d (the lists' own included)\n", upstream)
	fmt.Printf("a change reached all in %8s\n", reached.Round(time.Millisecond))
	if *limit > 0 && each(settled) > *limit {
		return fmt.Errorf("%.1f KB a stream is more than %.0f", each(settled), *limit)
	}
	return nil
}

// connect makes connections, each of which has carried one call.
func connect(ctx context.Context, address string, n int) ([]mcpbridgegrpc.ResourcesServiceClient, error) {
	var clients []mcpbridgegrpc.ResourcesServiceClient
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		client := mcpbridgegrpc.NewResourcesServiceClient(conn)
		if _, err := client.ListResources(ctx, &pb.ListResourcesRequest{}); err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

type watches []grpc.ServerStreamingClient[pb.WatchResourcesResponse]

// open opens streams and waits until each is ready.
func open(ctx context.Context, clients []mcpbridgegrpc.ResourcesServiceClient, n int) (watches, error) {
	all, errs := make(watches, n), make([]error, n)
	var wg sync.WaitGroup
	room := make(chan struct{}, len(clients)) // so many at a time
	for i := range all {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			all[i], errs[i] = watch(ctx, clients[i%len(clients)])
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

func watch(ctx context.Context, client mcpbridgegrpc.ResourcesServiceClient) (grpc.ServerStreamingClient[pb.WatchResourcesResponse], error) {
	stream, err := client.WatchResources(ctx, &pb.WatchResourcesRequest{Uris: []string{uri}})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err == nil && first.GetReady() == nil {
		err = fmt.Errorf("the first event is %v", first)
	}
	return stream, err
}

// changed waits until each stream has told of a change.
func (w watches) changed() error {
	errs := make([]error, len(w))
	var wg sync.WaitGroup
	for i, stream := range w {
		wg.Go(func() {
			for {
				event, err := stream.Recv()
				if err != nil || event.GetUpdated() != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// resident is what a process holds in memory, in KB.
func resident(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
		}
	}
	return 0, errors.New("the kernel does not say how much memory the process holds")
}

var listens = regexp.MustCompile(`listens on http://(127\.0\.0\.1:[0-9]+)`)

// launch starts the bridge and waits until it says where it listens.
func launch(cmd *exec.Cmd) (*exec.Cmd, string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	writer.Close()
	reader.SetReadDeadline(time.Now().Add(30 * time.Second))
	lines := bufio.NewScanner(reader)
	var seen strings.Builder
	for lines.Scan() {
		if match := listens.FindStringSubmatch(lines.Text()); match != nil {
			reader.SetReadDeadline(time.Time{})
			go func() { // ends with the process; what it says later is only trouble
				for lines.Scan() {
					fmt.Fprintln(os.Stderr, lines.Text())
				}
			}()
			return cmd, match[1], nil
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	stop(cmd)
	return nil, "", fmt.Errorf("%s did not say where it listens:\n%s", cmd, &seen)
}

func stop(cmd *exec.Cmd) {
	cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait()
}
