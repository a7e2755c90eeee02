// Command clientbench measures what one tools/call costs a process that uses this module's client, beside one that uses
// the client of the official Go SDK: CPU time and allocations per call. Both talk to the same minimal server
// (package lightmcp), which answers with prepared bytes, over HTTP answered with JSON, HTTP answered with an event stream, and
// stdio, with small and large results. Each client runs in a process of its own, the server in another; rounds are
// interleaved and medians are shown, because machines are noisy. Linux only. Run it in the folder test:
//
//	go run ./clientbench
//	go run ./clientbench -only "http json small" -profile ours.prof   # where our client spends its time
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	run := compare
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "server":
			run = func() error { return serve(os.Args[2:]) }
		case "client":
			run = func() error { return load(os.Args[2:]) }
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "clientbench:", err)
		os.Exit(1)
	}
}

// workload is one thing to measure.
type workload struct {
	name      string
	transport string // json, sse or stdio
	tool      string // small or large
}

// sample is what one round of one client measured, per call.
type sample struct {
	CPU     float64 `json:"cpu"`    // µs of user and system time
	Allocs  float64 `json:"allocs"` // heap objects
	Bytes   float64 `json:"bytes"`  // heap bytes
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
}

// compare runs everything and prints the table.
func compare() error {
	rounds := flag.Int("rounds", 7, "measurements of each client and workload")
	duration := flag.Duration("duration", time.Second, "length of one measurement")
	callers := flag.Int("callers", 8, "concurrent callers")
	only := flag.String("only", "", "measure the workloads whose name begins with this")
	profile := flag.String("profile", "", "write a CPU profile of our client to this file; needs -only with one workload")
	flag.Parse()

	var workloads []workload
	for _, transport := range []string{"http json", "http sse", "stdio"} {
		for _, tool := range []string{"small", "large"} {
			w := workload{name: transport + " " + tool, transport: strings.TrimPrefix(transport, "http "), tool: tool}
			if strings.HasPrefix(w.name, *only) {
				workloads = append(workloads, w)
			}
		}
	}
	if len(workloads) == 0 || *profile != "" && len(workloads) != 1 {
		return errors.New("-only must name a workload, such as \"http json small\"")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	clients := []string{"ours", "sdk"}
	samples := map[string][]sample{}
	for round := range *rounds {
		for _, w := range workloads {
			for _, client := range clients {
				args := []string{"client", client, w.transport, w.tool, duration.String(), fmt.Sprint(*callers)}
				if client == "ours" && *profile != "" {
					args = append(args, *profile)
				}
				s, err := measure(self, w, args)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, client, err)
				}
				samples[w.name+client] = append(samples[w.name+client], s)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d done\n", round+1, *rounds)
	}
	fmt.Printf("tools/call by %d callers, medians of %d rounds; ratio = ours / sdk\n\n", *callers, *rounds)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tours µs\tsdk µs\tratio\tspread of ours\tours allocs\tsdk allocs\tratio\tours kB\tsdk kB\tratio")
	for _, w := range workloads {
		ours, sdk := samples[w.name+"ours"], samples[w.name+"sdk"]
		cpu := func(s sample) float64 { return s.CPU }
		allocs := func(s sample) float64 { return s.Allocs }
		bytes := func(s sample) float64 { return s.Bytes / 1024 }
		least, most := extremes(ours, cpu)
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.2f\t%.0f-%.0f\t%.0f\t%.0f\t%.2f\t%.1f\t%.1f\t%.2f\n", w.name,
			median(ours, cpu), median(sdk, cpu), median(ours, cpu)/median(sdk, cpu), least, most,
			median(ours, allocs), median(sdk, allocs), median(ours, allocs)/median(sdk, allocs),
			median(ours, bytes), median(sdk, bytes), median(ours, bytes)/median(sdk, bytes))
	}
	return table.Flush()
}

// measure runs one client against a server of its own, whose address it inserts into the client's arguments.
func measure(self string, w workload, args []string) (sample, error) {
	var s sample
	server := exec.Command(self, "server", w.transport)
	target := self // on stdio the client starts the server
	if w.transport != "stdio" {
		server.Stderr = os.Stderr
		out, err := server.StdoutPipe()
		if err != nil {
			return s, err
		}
		if err := server.Start(); err != nil {
			return s, err
		}
		defer func() {
			_ = server.Process.Kill() // it may have ended
			_ = server.Wait()         // killed
		}()
		url, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return s, fmt.Errorf("the server did not say where it listens: %w", err)
		}
		target = strings.TrimSpace(url)
	}
	client := exec.Command(self, slices.Insert(args, 2, target)...)
	client.Stderr = os.Stderr
	out, err := client.Output()
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

func median(samples []sample, field func(sample) float64) float64 {
	values := fields(samples, field)
	slices.Sort(values)
	return values[len(values)/2]
}

func extremes(samples []sample, field func(sample) float64) (least, most float64) {
	values := fields(samples, field)
	return slices.Min(values), slices.Max(values)
}

func fields(samples []sample, field func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = field(s)
	}
	return values
}
