package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// processConn is one process and the stream over its pipes.
type processConn struct {
	*Stream
	budget                time.Duration
	exitWait, endWait     time.Duration
	stdin, stdout, stderr *os.File
	process               *os.Process
	under                 *supervisor // nil = the process is a child of ours
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

// start starts the process with fresh pipes. Its end is told after attached was
// closed.
func (p *processConn) start(cmd *exec.Cmd, attached <-chan struct{}) error {
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
			if <-attached; p.under != nil {
				p.status = p.under.status(p.status)
			}
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
	timer := time.NewTimer(p.exitWait)
	defer timer.Stop()
	select {
	case <-p.exited:
		p.lastWords()
		return p.errEnded(err)
	case <-timer.C:
		return p.errGone("the server process has closed its output", "", err)
	}
}

// ended waits a moment for the end of the process and describes it; nil when
// it lives on.
func (p *processConn) ended() error {
	timer := time.NewTimer(p.endWait)
	defer timer.Stop()
	select {
	case <-p.exited:
		select { // its last output may tell more
		case <-p.Stream.Done():
			return p.Err()
		case <-timer.C:
			return p.errEnded(nil)
		}
	case <-p.Stream.Done():
		return p.Err()
	case <-timer.C:
		return nil
	}
}

func (p *processConn) errEnded(cause error) error {
	return p.errGone("the server process has ended ("+p.how()+")", "; its stderr may say why", cause)
}

// errGone is a loss whose reason may be that the last output was text.
func (p *processConn) errGone(what, hint string, cause error) error {
	if junk := p.afterJunk(); junk != "" {
		hint = junk
	}
	return errLost(what+hint, cause)
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
		defer p.report() // with all of its stderr
	case <-p.Stream.Done():
		if p.waitExit(0) && !errors.Is(p.Err(), &Error{Kind: Closed}) {
			defer p.report() // its end was the reason
		}
		p.terminate()
		<-p.exited
	}
	p.sweep()
	p.Stream.wg.Wait()
	<-p.drained
}

// reportLines is how much of stderr is logged with the end of a process.
const reportLines = 5

// report logs that the process has ended by itself, with an error.
func (p *processConn) report() {
	if p.status != nil {
		p.log.Warn("the server process has ended", "pid", cmp.Or(p.under.pid(), p.process.Pid), "status", p.how(), "stderr", p.tail.last(reportLines))
	}
}

// terminate asks the process to end, ever less politely.
func (p *processConn) terminate() {
	_ = p.stdin.Close() // a second Close by sweep is harmless
	if p.waitExit(p.budget / 2) {
		return
	}
	p.signal(false)
	if p.waitExit(p.budget / 4) {
		return
	}
	p.signal(true)
	if p.under != nil && !p.under.kills(p.exited) {
		signalGroup(p.process, true) // the kernel kills the server with it
	}
}

// signal asks the process and its group to end, or kills them.
func (p *processConn) signal(kill bool) {
	if p.under != nil {
		p.under.signal(p.process, kill)
		return
	}
	signalGroup(p.process, kill)
}

// waitExit reports whether the process ends within d. It returns at once when
// Close has run out of time.
func (p *processConn) waitExit(d time.Duration) bool {
	select {
	case <-p.force:
		d = 0
	default:
	}
	select {
	case <-p.exited:
		return true
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
	p.signal(false)
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
	p.signal(true)
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
