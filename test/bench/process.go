package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// patience bounds the start of a process and its end.
const patience = 30 * time.Second

// process is a running child that has said where it listens.
type process struct {
	cmd     *exec.Cmd
	address string // of the main listener
	fast    string // of the listener on grpc-go's transport; "" = it has none
	idle    int    // bytes of memory right after the start
	printed chan struct{}
}

var (
	listensOn = regexp.MustCompile(`listens on http://(127\.0\.0\.1:[0-9]+)`)
	fastOn    = regexp.MustCompile(`gRPC(?: alone)? on (?:http://)?(127\.0\.0\.1:[0-9]+)`)
)

// launch starts a child and waits until it has said where it listens: on both listeners, if it has a fast one. The child
// is asked to end when ctx ends; stop waits for that.
func launch(ctx context.Context, hasFast bool, env []string, args ...string) (*process, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, args[0], args[1:]...), printed: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = patience
	err = p.cmd.Start()
	writer.Close()
	if err != nil {
		reader.Close()
		return nil, err
	}
	lines := bufio.NewScanner(reader)
	if err := p.listen(reader, lines, hasFast); err != nil {
		reader.Close()
		close(p.printed)
		p.stop()
		return nil, err
	}
	go func() { // ends with the child; what it says later is only trouble, or news of one that logs all
		defer close(p.printed)
		defer reader.Close()
		for lines.Scan() {
			if strings.Contains(lines.Text(), "level=INFO") {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", filepath.Base(args[0]), lines.Text())
		}
	}()
	if p.idle, _, err = memory(p.cmd.Process.Pid); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// listen reads the addresses.
func (p *process) listen(output *os.File, lines *bufio.Scanner, hasFast bool) error {
	if err := output.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var seen strings.Builder
	for p.address == "" || hasFast && p.fast == "" {
		if !lines.Scan() {
			return fmt.Errorf("%s did not say where it listens: %w\n%s", p.cmd, cmp.Or(lines.Err(), io.EOF), &seen)
		}
		if found := listensOn.FindStringSubmatch(lines.Text()); found != nil {
			p.address = found[1]
		}
		if found := fastOn.FindStringSubmatch(lines.Text()); found != nil {
			p.fast = found[1]
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	return output.SetReadDeadline(time.Time{})
}

// stop ends the child and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait() // how a child ends is not measured
	<-p.printed
}
