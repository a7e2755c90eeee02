package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mcpbridge/mcpbridge/internal/admin"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	bridgeotel "github.com/mcpbridge/mcpbridge/otel"
	"github.com/mcpbridge/mcpbridge/server"
)

type serveFlags struct {
	config, mcpJSON, listen, admin string
	demo, insecure                 bool
}

func serveCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the configured MCP servers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer tendHeap(cmd.Context())()
			files := newFileWatch(flags.config, flags.mcpJSON) // before they are read, so that no change is missed
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			r := &reloader{load: flags.load, files: files, running: cfg}
			return serve(cmd.Context(), cfg, r, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.addFiles(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.listen, "listen", "", "listen address, in place of the configured one")
	f.StringVar(&flags.admin, "admin", "", "address of the admin listener, in place of the configured one")
	f.BoolVar(&flags.demo, "demo", false, "add the built-in MCP server as the target \"demo\"")
	f.BoolVar(&flags.insecure, "insecure", false, "allow an address that others can reach although nothing authenticates them")
	return cmd
}

// addFiles adds the flags that name files.
func (f *serveFlags) addFiles(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.config, "config", "", "configuration file (YAML)")
	set.StringVar(&f.mcpJSON, "mcp-json", "", "file in the common mcpServers format; its servers are added as targets")
}

// load makes the configuration out of files and flags.
func (f *serveFlags) load() (*config.Config, error) {
	cfg := config.Default()
	if f.config != "" {
		var err error
		if cfg, err = config.Load(f.config); err != nil {
			return nil, err
		}
	}
	if f.mcpJSON != "" {
		more, err := config.LoadMCPJSON(f.mcpJSON)
		if err != nil {
			return nil, err
		}
		if err := cfg.Merge(more); err != nil {
			return nil, err
		}
	}
	if f.demo {
		if _, taken := cfg.Targets["demo"]; taken {
			return nil, errors.New("--demo adds a target named \"demo\", and the configuration already has one; rename that")
		}
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("--demo needs the path of this program: %w", err)
		}
		demo := config.NewTarget(config.TransportStdio)
		demo.Command = []string{self, "demo-server"}
		if err := cfg.Merge(map[string]*config.Target{"demo": demo}); err != nil {
			return nil, err
		}
	}
	if len(cfg.Targets) == 0 && f.config+f.mcpJSON != "" {
		return nil, fmt.Errorf("there is nothing to serve: %s names no target; see docs/configuration.md, or try --demo", cmp.Or(f.config, f.mcpJSON))
	}
	if len(cfg.Targets) == 0 {
		return nil, errors.New("there is nothing to serve: name MCP servers with --config FILE or --mcp-json FILE, or try --demo")
	}
	if f.listen != "" {
		cfg.Listen.Address = f.listen
	}
	if f.admin != "" {
		cfg.Listen.Admin.Address = f.admin
	}
	cfg.Listen.Insecure = cfg.Listen.Insecure || f.insecure
	cfg.Listen.Admin.Insecure = cfg.Listen.Admin.Insecure || f.insecure
	return cfg, cfg.Validate()
}

// serve wires everything together, runs until ctx ends, and takes it down in
// reverse. r lacks what is made here.
func serve(ctx context.Context, cfg *config.Config, r *reloader, stdout, stderr io.Writer) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // one that comes before the bridge serves must not end it
	defer signal.Stop(hangups)
	r.hangups = hangups
	level := new(slog.LevelVar)
	level.Set(levelOf(cfg.Log))
	log := newLogger(cfg.Log.Format, level, stderr)
	closing, release := closingOf(ctx)
	defer release()
	serving := false
	defer func() {
		if serving {
			log.InfoContext(ctx, "stopped")
		}
	}()
	telemetry, metrics, endTelemetry, err := startTelemetry(ctx, closing, cfg, log)
	if err != nil {
		return err
	}
	defer endTelemetry()
	if err := metrics.ObserveSpans(telemetry.Spans); err != nil {
		return err
	}
	interceptors, err := telemetry.ServerInterceptors(metrics)
	if err != nil {
		return err
	}
	set, err := targets.New(cfg, targets.Deps{
		Supervisor:  supervisor(),
		Logger:      log,
		Version:     version,
		Instruments: instruments(telemetry, metrics),
	})
	if err != nil {
		return err
	}
	if err := metrics.ObserveTargets(func() []bridgeotel.TargetFigures { return figures(set) }); err != nil {
		return err
	}
	srv, err := server.New(server.Options{
		Targets:         set,
		Logger:          log,
		MaxRequestBytes: cfg.Listen.MaxRequestBytes.Int(),
		Interceptors:    interceptors,
		TraceID:         telemetry.TraceID,
		Access:          accessOf(cfg.Log),
		Observe: func(ctx context.Context, o server.Outcome) {
			metrics.RPCEnded(ctx, o.Procedure, o.Target, o.Reason)
			telemetry.RPCEnded(ctx, o.Target)
		},
	})
	if err != nil {
		return err
	}
	adm, stopAdmin, err := startAdmin(ctx, closing, cfg.Listen.Admin, metrics, set, log)
	if err != nil {
		return err
	}
	defer stopAdmin()
	listeners, err := listen(ctx, cfg.Listen)
	if err != nil {
		return err
	}

	set.Start()
	r.set, r.level, r.log = set, level, log
	stopReloading := r.start(ctx)
	serving = true
	served := make(chan error, 2)
	go func() { served <- srv.Serve(listeners.all) }()
	if listeners.grpc != nil {
		go func() { served <- srv.ServeGRPC(listeners.grpc) }()
	}
	adm.SetState(admin.StateServing)
	if _, err := io.WriteString(stdout, listeners.String()); err != nil {
		log.WarnContext(ctx, "the address could not be printed", "error", err)
	}

	var failed error
	select {
	case <-ctx.Done():
		log.InfoContext(ctx, "shutting down", "cause", context.Cause(ctx))
	case failed = <-served:
	}
	adm.SetState(admin.StateDraining)
	stopReloading()
	// callers first, then the connections they used
	drain(closing, log, srv, cfg.Shutdown.Timeout)
	ending(closing, log, "targets", targetsBudget, set.Close)
	return failed
}

// instruments has every target traced and measured.
func instruments(telemetry *bridgeotel.Telemetry, metrics *bridgeotel.Metrics) func(string, *config.Target) targets.Instruments {
	return func(name string, c *config.Target) targets.Instruments {
		rule := bridgeotel.BaggageRule{Restrict: c.Baggage.Policy != config.BaggageForward, Keys: c.Baggage.Keys}
		traces := telemetry.Target(bridgeotel.TargetOptions{Name: name, Baggage: rule})
		measured := metrics.Target(name)
		return targets.Instruments{
			Interceptors: []mcpclient.Interceptor{traces.Interceptor(), measured.Interceptor()},
			Meta:         traces.Meta(), Headers: traces.Headers(),
			OnConnect: traces.OnConnect(), OnWait: traces.OnWait(), OnQueue: traces.OnQueue(), OnRequest: traces.OnRequest(),
			OnList: measured.OnList(), OnSessionEnd: measured.OnSessionEnd(),
		}
	}
}

// supervisor is the command line that runs child processes so that nothing of
// them outlives this program, however it ends; nil where there is no such thing.
func supervisor() []string {
	self, err := os.Executable()
	if err != nil || runtime.GOOS != "linux" {
		return nil
	}
	return []string{self, superviseArg}
}

// levelOf is what a configuration says of the log; info if that is wrong.
func levelOf(c config.Log) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated by the configuration
	return level
}

// durationsAsText writes durations as the text format does, such as "4.78s"; in
// JSON they would be nanoseconds without a unit.
func durationsAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// newLogger makes the program's logger; every line of a call has its trace id.
func newLogger(format config.LogFormat, level slog.Leveler, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if format == config.FormatJSON {
		options.ReplaceAttr = durationsAsText
		h = slog.NewJSONHandler(w, options)
	}
	return slog.New(bridgeotel.LogHandler(h))
}
