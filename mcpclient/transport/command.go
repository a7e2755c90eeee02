package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Command is the stdio transport: every Dial starts one process of its own
// group. Path is required; fields must not change after the first Dial.
type Command struct {
	// Path is the program: a path, or a name to look up in PATH of Env, or in
	// our own PATH when Env has none.
	Path string
	Args []string
	// Env is the whole environment; nothing is inherited.
	Env []string
	// Dir is the working directory; "" = ours.
	Dir string
	// StopTimeout is what Close takes at most: half of it after closing stdin,
	// a quarter after SIGTERM, then SIGKILL, to the whole process group; 0 =
	// 10 s.
	StopTimeout time.Duration
	// MaxReplyBytes bounds one line; 0 = DefaultMaxReplyBytes, negative = none.
	MaxReplyBytes int64
	// MaxJunk bounds output that is no JSON-RPC message.
	MaxJunk JunkLimit
	// LenientIDs: see StreamOptions.
	LenientIDs bool
	// Supervisor is the start of a command line that ends in [Supervise], like
	// the path of this program and the name of its subcommand. With it, on
	// Linux, everything that the process has started dies with it, also what
	// has left its process group, and with us, even when we are killed. Empty,
	// and elsewhere, the group is killed, and on Linux the process itself dies
	// with us.
	Supervisor []string
	// Redact: see HTTP. It is also applied to what the process writes to stderr.
	Redact func(string) string
	// Logger; nil = no logs. Lines on stderr are logged at debug level, some
	// hundreds a second at most.
	Logger *slog.Logger

	// patience replaces exitWait and endWait in tests; 0 = those.
	patience time.Duration

	mu     sync.Mutex // guards what follows
	dials  int
	stderr *stderrTail // of the newest process that has written something
	newest int         // its dial
}

// DefaultStopTimeout is Command.StopTimeout where none is set.
const DefaultStopTimeout = 10 * time.Second

// Name returns NameStdio.
func (c *Command) Name() string { return NameStdio }

// StderrTail returns the last lines, at most 64 KiB, that the newest process
// which has said anything wrote to stderr, also after its end.
func (c *Command) StderrTail() []string {
	c.mu.Lock()
	tail := c.stderr
	c.mu.Unlock()
	if tail == nil {
		return nil
	}
	return tail.last(-1)
}

// newTail returns the place for the stderr of one more process. It becomes the
// one to show with its first byte.
func (c *Command) newTail(log *slog.Logger) *stderrTail {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	tail, dial := &stderrTail{redact: c.Redact, log: log}, c.dials
	tail.first = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if dial > c.newest {
			c.stderr, c.newest = tail, dial
		}
	}
	return tail
}

// Dial starts the process. The error names the command and why it cannot
// start.
func (c *Command) Dial(ctx context.Context, h Handler) (Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %q: %w", c.Path, err)
	}
	path, err := c.find()
	if err != nil {
		return nil, &Error{Kind: NotSent, Message: err.Error()}
	}
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &processConn{
		tail: c.newTail(log), budget: c.StopTimeout, exitWait: cmp.Or(c.patience, exitWait), endWait: cmp.Or(c.patience, endWait),
		exited: make(chan struct{}), gone: make(chan struct{}), force: make(chan struct{}), drained: make(chan struct{}),
	}
	if p.budget <= 0 {
		p.budget = DefaultStopTimeout
	}
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{c.Path}, c.Args...), Dir: c.Dir,
		Env: append([]string{}, c.Env...), // not nil, which would inherit ours
	}
	if canSupervise && len(c.Supervisor) > 0 {
		err = p.startSupervised(ctx, cmd, c.Supervisor)
	} else {
		cmd.SysProcAttr = processAttributes()
		attached := make(chan struct{})
		close(attached)
		err = p.start(cmd, attached)
	}
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return nil, fmt.Errorf("start %q: %w", c.Path, ended)
		}
		return nil, &Error{Kind: NotSent, Message: startMessage(c.Path, err), Err: err}
	}
	p.Stream = newStream(pipes{p.stdout, p.stdin}, h, StreamOptions{
		MaxReplyBytes: c.MaxReplyBytes, MaxJunk: c.MaxJunk, LenientIDs: c.LenientIDs, Redact: c.Redact, Logger: log,
	})
	p.explain, p.ending = p.reason, p.ended
	p.stop = func() {} // supervise sees Done
	p.Stream.start()
	go func() {
		defer close(p.drained)
		p.tail.fill(p.stderr)
	}()
	go p.supervise()
	return p, nil
}

// find returns the program's path.
func (c *Command) find() (string, error) {
	if c.Path == "" {
		return "", errors.New("the command is empty; name a program to start")
	}
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("cannot start %q: the working directory %q does not exist or is no directory", c.Path, c.Dir)
		}
	}
	if filepath.Base(c.Path) != c.Path {
		return c.Path, nil
	}
	dirs := os.Getenv("PATH")
	for _, entry := range c.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			dirs = value
		}
	}
	forbidden := ""
	for _, dir := range filepath.SplitList(dirs) {
		if !filepath.IsAbs(dir) {
			continue // a program from wherever we happen to run would be a trap
		}
		switch path, err := exec.LookPath(filepath.Join(dir, c.Path)); {
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrPermission):
			forbidden = filepath.Join(dir, c.Path)
		}
	}
	if forbidden != "" {
		return "", fmt.Errorf("cannot start %q: %s is not executable; set its execute permission", c.Path, forbidden)
	}
	return "", fmt.Errorf("cannot start %q: it is in no directory of PATH; install it, or give its full path", c.Path)
}

func startMessage(path string, err error) string {
	switch {
	case errors.Is(err, errSupervisor):
		return fmt.Sprintf("cannot start %q: %v", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("cannot start %q: the file, or the interpreter it names, does not exist; check the path", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("cannot start %q: permission denied; check that it is executable", path)
	case strings.Contains(err.Error(), "exec format error"):
		return fmt.Sprintf("cannot start %q: it is no program for this system, or a script without a #! line", path)
	}
	return fmt.Sprintf("cannot start %q: the system refuses to start it", path)
}
