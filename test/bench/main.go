// Command bench measures what one CallTool costs the bridge: CPU time of its process per call, beside two references
// measured in the same run by the same load over gRPC:
//
//	post  a Connect handler that does one net/http POST to the MCP server and forwards the bytes: the floor
//	sdk   a Connect handler that calls through the client of the official Go SDK
//
// The bridge is called on both of its listeners. The MCP server is a minimal one that answers with JSON (see server.go). Rounds are interleaved and medians are
// shown, because machines are noisy. Run it with "go run ./bench" in the folder test.
//
// With -tracing it measures what tracing costs instead: the bridge without it, with it for callers that are not sampled,
// and with it for callers that are, spans exported by OTLP. It fails when that is more than the project allows.
package main

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

func main() {
	run := bench
	if len(os.Args) == 3 && slices.Contains([]string{"server", "post", "sdk", "collector"}, os.Args[1]) {
		run = func() error { return serveRole(os.Args[1], os.Args[2]) } // one of the children
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// contender is a process under load.
type contender struct {
	name    string
	process *process
	address string // "" = that of the process
	request *pb.CallToolRequest
	parent  string // the traceparent of the calls; "" = none
	rounds  []sample
}

func bench() error {
	duration := flag.Duration("duration", 2*time.Second, "length of one measurement")
	rounds := flag.Int("rounds", 5, "measurements of each contender")
	callers := flag.Int("callers", 16, "concurrent callers")
	size := flag.Int("bytes", 1024, "bytes of text echoed")
	bridge := flag.String("bridge", "", "bridge binary; empty builds ../cmd/bridge")
	tracing := flag.Bool("tracing", false, "measure the cost of tracing")
	flag.Parse()

	dir, err := os.MkdirTemp("", "mcpbridge-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *bridge == "" {
		*bridge = filepath.Join(dir, "bridge")
		build := exec.Command("go", "build", "-o", *bridge, "./cmd/bridge")
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the bridge (bench runs in the folder test): %w\n%s", err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}

	server, err := launch(exec.Command(self, "server", "-"))
	if err != nil {
		return err
	}
	defer server.stop()
	url, config := "http://"+server.address+"/mcp", filepath.Join(dir, "bridge.yaml")
	if err := os.WriteFile(config, []byte("log: {level: warn}\nlisten: {grpc: \"127.0.0.1:0\"}\ntargets:\n  bench:\n    url: "+url+"\n"), 0o600); err != nil {
		return err
	}

	text := strings.Repeat("0123456789abcdef", *size/16+1)[:*size]
	arguments, err := structpb.NewStruct(map[string]any{"text": text})
	if err != nil {
		return err
	}
	asText := &pb.CallToolRequest{Name: "echo", ArgumentsJson: new(`{"text":"` + text + `"}`), JsonFormat: pb.JsonFormat_JSON_FORMAT_TEXT}
	if *tracing {
		return benchTracing(setting{self: self, bridge: *bridge, config: config, request: asText, text: text, rounds: *rounds, callers: *callers, duration: *duration})
	}
	var processes []*process
	for _, cmd := range []*exec.Cmd{
		exec.Command(self, "post", url),
		exec.Command(self, "sdk", url),
		exec.Command(*bridge, "serve", "--config", config, "--listen", "127.0.0.1:0"),
	} {
		p, err := launch(cmd)
		if err != nil {
			return err
		}
		defer p.stop()
		processes = append(processes, p)
	}
	contenders := []*contender{
		{name: "post (floor)", process: processes[0], request: asText},
		{name: "sdk", process: processes[1], request: asText},
		{name: "bridge, JSON text", process: processes[2], request: asText},
		{name: "bridge, Struct", process: processes[2], request: &pb.CallToolRequest{Name: "echo", Arguments: arguments}},
		{name: "bridge, JSON text, listen.grpc", process: processes[2], address: processes[2].grpc, request: asText},
	}
	if err := measure(contenders, text, *rounds, *callers, *duration); err != nil {
		return err
	}
	return report(contenders, *callers, *size)
}

// measure runs the rounds, in which every contender has its turn.
func measure(contenders []*contender, text string, rounds, callers int, duration time.Duration) error {
	for _, c := range contenders {
		if err := check(c, text); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for round := range rounds {
		for _, c := range contenders {
			s, err := load(c, callers, duration)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rounds = append(c.rounds, s)
		}
		fmt.Fprintf(os.Stderr, "round %d of %d done\n", round+1, rounds)
	}
	return nil
}

func report(contenders []*contender, callers, size int) error {
	fmt.Printf("CallTool, %d bytes echoed, %d callers over one gRPC connection, medians of %d rounds\n\n", size, callers, len(contenders[0].rounds))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tCPU µs/call\tratio\tspread\tcalls/s\tp50 ms\tp99 ms")
	floor := median(contenders[0].rounds, cpu)
	for _, c := range contenders {
		least := slices.MinFunc(c.rounds, func(a, b sample) int { return cmp.Compare(a.cpu, b.cpu) })
		most := slices.MaxFunc(c.rounds, func(a, b sample) int { return cmp.Compare(a.cpu, b.cpu) })
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.0f-%.0f\t%.0f\t%.2f\t%.2f\n", c.name, median(c.rounds, cpu), median(c.rounds, cpu)/floor, least.cpu, most.cpu,
			median(c.rounds, func(s sample) float64 { return s.rate }), median(c.rounds, func(s sample) float64 { return s.p50 }), median(c.rounds, func(s sample) float64 { return s.p99 }))
	}
	return w.Flush()
}

func cpu(s sample) float64 { return s.cpu }

func median(samples []sample, field func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = field(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// process is a child that has printed where it listens.
type process struct {
	cmd     *exec.Cmd
	address string
	grpc    string // of the listener for gRPC alone; "" = there is none
}

var address = regexp.MustCompile(`(?:listening |listens on http://)(127\.0\.0\.1:[0-9]+)(?:, and for gRPC alone on (127\.0\.0\.1:[0-9]+))?`)

// launch starts a child and waits for the address in its output.
func launch(cmd *exec.Cmd) (*process, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	writer.Close()
	p := &process{cmd: cmd}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { reader.SetReadDeadline(time.Now()) })()
	lines := bufio.NewScanner(reader)
	var seen strings.Builder
	for lines.Scan() {
		if match := address.FindStringSubmatch(lines.Text()); match != nil {
			p.address, p.grpc = match[1], match[2]
			go func() { // ends with the child; what it says later is only trouble
				for lines.Scan() {
					fmt.Fprintln(os.Stderr, lines.Text())
				}
			}()
			return p, nil
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	p.stop()
	return nil, fmt.Errorf("%s did not say where it listens:\n%s", cmd, &seen)
}

func (p *process) stop() {
	p.cmd.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	p.cmd.Wait()
}
