package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcpbridge/mcpbridge/test/bench/lightmcp"
)

// Targets of the bridge under a load: the same server, whose lists may be kept, or not.
const (
	target      = "light"
	freshTarget = "fresh"
)

// runner has what all measurements share.
type runner struct {
	self, bridge string // programs
	dir          string // for files
	loaded       string // load average before the first measurement
	rounds       int
	duration     time.Duration // of one measurement
	settle       time.Duration // of what is idle, before its memory is measured
	fast         bool          // the bridge has listen.grpc
	apart        string        // processors of what is measured; "" = no pinning
	rest         string        // processors of everything else
	targets      int
	watches      int
	connections  int // that carry the watches
	most         int // callers of one load; 0 = any number
}

// pin puts a command on processors.
func (r *runner) pin(cpus string, command ...string) []string {
	if cpus == "" {
		return command
	}
	return append([]string{r.self, "pin", cpus}, command...)
}

// startBridge starts a bridge with targets, which are lines of YAML.
func (r *runner) startBridge(ctx context.Context, env []string, targets ...string) (*process, error) {
	settings := "log: {level: warn}\nlisten: {address: \"127.0.0.1:0\"}\n"
	if r.fast {
		settings = "log: {level: warn}\nlisten: {address: \"127.0.0.1:0\", grpc: \"127.0.0.1:0\"}\n"
	}
	file, err := os.CreateTemp(r.dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString(settings + "targets:\n" + strings.Join(targets, ""))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	env = append([]string{"OTEL_TRACES_EXPORTER=none"}, env...) // the last one counts
	return launch(ctx, r.fast, env, r.pin(r.apart, r.bridge, "serve", "--config", file.Name())...)
}

// startServer starts an MCP server over HTTP.
func (r *runner) startServer(ctx context.Context, mode lightmcp.Mode, tools int) (*process, error) {
	return launch(ctx, false, nil, r.pin(r.rest, r.self, "mcp", string(mode), strconv.Itoa(tools))...)
}

// comparison is the same work done in several ways, round by round.
type comparison struct {
	mode        lightmcp.Mode
	work        work
	callers     int
	connections int // 0 = 1
	once        int // one measurement, so many times as long as the usual ones; 0 = the usual ones
	rows        []string
}

func (c comparison) measure(ctx context.Context, r *runner) ([]row, error) {
	s := scene{runner: r, comparison: c, running: map[string]*process{}}
	defer s.end()
	rounds, duration := r.rounds, r.duration
	if c.once > 0 {
		rounds, duration = 1, r.duration*time.Duration(c.once)
	}
	if r.most > 0 {
		s.callers = min(s.callers, r.most)
	}
	var rows []row
	for _, name := range c.rows {
		if name == bridgeFast && !r.fast {
			continue
		}
		rows = append(rows, row{name: name, values: map[metric][]float64{}})
	}
	for range rounds {
		for _, row := range rows {
			if err := s.add(ctx, row, duration); err != nil {
				return nil, fmt.Errorf("%s: %w", row.name, err)
			}
		}
	}
	return rows, nil
}

// scene is a comparison with the processes that take part in it.
type scene struct {
	*runner
	comparison
	url     string
	running map[string]*process
	order   []*process // of their starts
}

func (s *scene) end() {
	for _, p := range slices.Backward(s.order) {
		p.stop()
	}
}

func (s *scene) keep(name string, p *process, err error) (*process, error) {
	if err != nil {
		return nil, err
	}
	s.running[name], s.order = p, append(s.order, p)
	return p, nil
}

// child is the command of the MCP server on stdio; it is not to run where its parent does.
func (s *scene) child() []string {
	if s.mode != lightmcp.Stdio {
		return nil
	}
	return s.pin(s.rest, s.self, "mcp", string(lightmcp.Stdio), "0")
}

// serverURL starts the MCP server when it is needed first.
func (s *scene) serverURL(ctx context.Context) (string, error) {
	if s.mode == lightmcp.Stdio || s.url != "" {
		return s.url, nil
	}
	tools := 0
	if s.work.Kind == "list" {
		tools = s.work.Size
	}
	p, err := s.startServer(ctx, s.mode, tools)
	if p, err = s.keep("mcp", p, err); err != nil {
		return "", fmt.Errorf("the MCP server: %w", err)
	}
	s.url = "http://" + p.address
	return s.url, nil
}

// process is a running process that can be measured; it is started when it is needed first.
func (s *scene) process(ctx context.Context, name string) (*process, error) {
	if p := s.running[name]; p != nil {
		return p, nil
	}
	url, err := s.serverURL(ctx)
	if err != nil {
		return nil, err
	}
	var env []string
	switch kind, _, _ := strings.Cut(name, " "); kind {
	case "floor":
		p, err := launch(ctx, true, nil, s.pin(s.apart, s.self, "floor", url)...)
		return s.keep(name, p, err)
	case "sdk":
		upstream := []string{url}
		if s.mode == lightmcp.Stdio {
			upstream = s.child()
		}
		p, err := launch(ctx, true, nil, s.pin(s.apart, append([]string{s.self, "sdk"}, upstream...)...)...)
		return s.keep(name, p, err)
	case "traced":
		env, err = s.tracing(ctx)
	}
	if err != nil {
		return nil, err
	}
	targets := []string{fmt.Sprintf("  %s: {url: \"%s/mcp\"}\n", target, url), fmt.Sprintf("  %s: {url: \"%s%s\"}\n", freshTarget, url, lightmcp.Fresh)}
	if command := s.child(); command != nil {
		list, err := json.Marshal(command)
		if err != nil {
			return nil, err
		}
		targets = []string{fmt.Sprintf("  %s: {command: %s}\n", target, list)}
	}
	p, err := s.startBridge(ctx, env, targets...)
	return s.keep(name, p, err)
}

// tracing is the environment of a bridge that exports spans; the collector is started when it is needed first.
func (s *scene) tracing(ctx context.Context) ([]string, error) {
	sink := s.running["sink"]
	if sink == nil {
		p, err := launch(ctx, false, nil, s.pin(s.rest, s.self, "sink")...)
		if sink, err = s.keep("sink", p, err); err != nil {
			return nil, err
		}
	}
	return []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + sink.address}, nil
}

// add makes one measurement and adds it to the row.
func (s *scene) add(ctx context.Context, row row, duration time.Duration) error {
	c := contenders[row.name]
	spec := loadSpec{Via: c.via, Work: s.work, Callers: s.callers, Connections: s.comparison.connections, WarmUp: duration / 4, Duration: duration, Parent: c.parent}
	if c.change != nil {
		c.change(&spec.Work)
	}
	url, err := s.serverURL(ctx)
	if err != nil {
		return err
	}
	cpus, idle := s.apart, 0 // a generator that calls directly is what is measured
	spec.Address, spec.Command = url, s.child()
	if c.process != "" {
		p, err := s.process(ctx, c.process)
		if err != nil {
			return err
		}
		cpus, idle = s.rest, p.idle
		spec.Via, spec.Command, spec.Address, spec.PID = "grpc", nil, p.address, p.cmd.Process.Pid
		if c.via == "fast" {
			spec.Address = p.fast
		}
	}
	measured, err := s.generate(ctx, cpus, spec)
	if err != nil {
		return err
	}
	const mb = 1 << 20
	for metric, value := range map[metric]float64{
		cpu: measured.CPU, rate: measured.Rate, p50: measured.P50, p95: measured.P95, p99: measured.P99, told: measured.Told,
		resident: float64(measured.Memory) / mb, peak: float64(measured.Peak) / mb,
		multiple: float64(measured.Peak-idle) / float64(s.callers*max(1, s.work.Size)),
	} {
		row.values[metric] = append(row.values[metric], value)
	}
	return nil
}

// generate runs a load generator.
func (r *runner) generate(ctx context.Context, cpus string, spec loadSpec) (sample, error) {
	var s sample
	text, err := json.Marshal(spec)
	if err != nil {
		return s, err
	}
	command := r.pin(cpus, r.self, "load", string(text))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("%s: %w\n%s", filepath.Base(r.self), err, &trouble)
	}
	return s, json.Unmarshal(out, &s)
}
