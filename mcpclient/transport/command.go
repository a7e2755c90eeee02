package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	// Logger; nil = no logs.
	Logger *slog.Logger

	mu     sync.Mutex // guards stderr
	stderr *stderrTail
}

// DefaultStopTimeout is Command.StopTimeout where none is set.
const DefaultStopTimeout = 10 * time.Second

// Name returns NameStdio.
func (c *Command) Name() string { return NameStdio }

// StderrTail returns the last lines, at most 64 KiB, that the newest process
// wrote to stderr, also after its end.
func (c *Command) StderrTail() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stderr == nil {
		return nil
	}
	return c.stderr.lines()
}

// Dial starts the process. The error names the command and why it cannot
// start. On Linux the process dies with us, even if we are killed.
func (c *Command) Dial(ctx context.Context, h Handler) (Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %q: %w", c.Path, err)
	}
	path, err := c.find()
	if err != nil {
		return nil, &Error{Kind: NotSent, Message: err.Error()}
	}
	p := &processConn{
		tail: &stderrTail{}, budget: c.StopTimeout,
		exited: make(chan struct{}), gone: make(chan struct{}), force: make(chan struct{}), drained: make(chan struct{}),
	}
	if p.budget <= 0 {
		p.budget = DefaultStopTimeout
	}
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{c.Path}, c.Args...), Dir: c.Dir,
		Env:         append([]string{}, c.Env...), // not nil, which would inherit ours
		SysProcAttr: processAttributes(),
	}
	if err := p.start(cmd); err != nil {
		return nil, &Error{Kind: NotSent, Message: startMessage(c.Path, err), Err: err}
	}
	c.mu.Lock()
	c.stderr = p.tail
	c.mu.Unlock()
	p.Stream = newStream(pipes{p.stdout, p.stdin}, h, StreamOptions{
		MaxReplyBytes: c.MaxReplyBytes, MaxJunk: c.MaxJunk, LenientIDs: c.LenientIDs, Logger: c.Logger,
	})
	p.explain = p.reason
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
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("cannot start %q: the file, or the interpreter it names, does not exist; check the path", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("cannot start %q: permission denied; check that it is executable", path)
	case strings.Contains(err.Error(), "exec format error"):
		return fmt.Sprintf("cannot start %q: it is no program for this system, or a script without a #! line", path)
	}
	return fmt.Sprintf("cannot start %q: the system refuses to start it", path)
}

// processConn is one process and the stream over its pipes.
type processConn struct {
	*Stream
	budget                time.Duration
	stdin, stdout, stderr *os.File
	process               *os.Process
	tail                  *stderrTail
	drained               chan struct{} // stderr has been read to its end
	exited                chan struct{} // the process has been waited for
	status                error         // how it ended; nil = status 0
	gone                  chan struct{} // nothing is left of the process and its group
	force                 chan struct{} // closed to skip what is left of the grace
	forcing               sync.Once
}

// pipes joins the two pipes to one stream.
type pipes struct {
	*os.File
	stdin *os.File
}

func (p pipes) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// start starts the process with fresh pipes.
func (p *processConn) start(cmd *exec.Cmd) error {
	var files [6]*os.File // in pairs of read end and write end
	for i := 0; i < len(files); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(files[:])
			return err
		}
		files[i], files[i+1] = r, w
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
	p.stdin, p.stdout, p.stderr = files[1], files[2], files[4]
	started := make(chan error, 1)
	go func() {
		// Linux kills the child when the thread that forked it ends. This one
		// stays locked here until the child has been waited for.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.status = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		closeAll(files[:])
		return err
	}
	p.process = cmd.Process
	closeAll([]*os.File{files[0], files[3], files[5]})
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written that could be lost
		}
	}
}

// exitWait is for how long the end of stdout waits for the end of the process,
// to name its status.
const exitWait = time.Second

// reason says why stdout ended.
func (p *processConn) reason(err error) error {
	timer := time.NewTimer(exitWait)
	defer timer.Stop()
	select {
	case <-p.exited:
		p.lastWords()
		return errLost("the server process has ended ("+p.how()+"); its stderr may say why", err)
	case <-timer.C:
		return errLost("the server process has closed its output", err)
	}
}

// lastWords gives what a process has written to stderr before its end a
// moment to be read, so that StderrTail has it when Done is closed.
func (p *processConn) lastWords() {
	timer := time.NewTimer(exitWait / 5)
	defer timer.Stop()
	select {
	case <-p.drained:
	case <-timer.C: // a child of the process holds it
	}
}

// how describes the end of the process.
func (p *processConn) how() string {
	if p.status == nil {
		return "exit status 0"
	}
	return p.status.Error()
}

// supervise sees to it that nothing outlives the connection: it stops the
// process once the stream has ended, and what is left of its group in any
// case.
func (p *processConn) supervise() {
	defer close(p.gone)
	select {
	case <-p.exited:
	case <-p.Stream.Done():
		p.terminate()
		<-p.exited
	}
	p.sweep()
	p.Stream.wg.Wait()
	<-p.drained
}

// terminate asks the process to end, ever less politely.
func (p *processConn) terminate() {
	_ = p.stdin.Close() // a second Close by sweep is harmless
	if p.waitExit(p.budget / 2) {
		return
	}
	signalGroup(p.process, false)
	if p.waitExit(p.budget / 4) {
		return
	}
	signalGroup(p.process, true)
}

// waitExit reports whether the process ends within d. It returns at once when
// Close has run out of time.
func (p *processConn) waitExit(d time.Duration) bool {
	select {
	case <-p.force:
		d = 0
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-p.force:
	case <-timer.C:
	}
	return false
}

// sweep ends what the process has left behind. Children that hold its pipes
// get a moment to finish; output still in the pipes is read.
func (p *processConn) sweep() {
	signalGroup(p.process, false)
	read := make(chan struct{})
	go func() {
		p.Stream.wg.Wait()
		<-p.drained
		close(read)
	}()
	_ = p.stdin.Close() // closed already after terminate
	timer := time.NewTimer(min(p.budget/8, time.Second/2))
	defer timer.Stop()
	select {
	case <-read:
	case <-p.force:
	case <-timer.C:
	}
	signalGroup(p.process, true)
	closeAll([]*os.File{p.stdout, p.stderr})
	<-read
}

// forceGrace is how long Close waits for the kernel after SIGKILL when its
// context has ended.
const forceGrace = time.Second

// Close ends the process and its group, in StopTimeout at most, or at once
// when ctx ends.
func (p *processConn) Close(ctx context.Context) error {
	p.fail(errConnClosed())
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
	}
	p.forcing.Do(func() { close(p.force) })
	timer := time.NewTimer(forceGrace)
	defer timer.Stop()
	select {
	case <-p.gone:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d does not end after SIGKILL: %w", p.process.Pid, ctx.Err())
	}
}
