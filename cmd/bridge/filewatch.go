package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// fileWatch notices that the contents of files change. It watches their
// directories, since most editors replace a file instead of writing to it, and
// where symbolic links lead, since Kubernetes replaces the link to a directory.
// It is for one goroutine at a time.
type fileWatch struct {
	files   []string // absolute
	seen    [sha256.Size]byte
	watcher *fsnotify.Watcher // nil = not open
	linked  bool              // an event of any name may be about a file
	stats   []os.FileInfo     // what moved has seen; nil = no such file
}

// newFileWatch takes note of the files' contents; empty names are left out.
func newFileWatch(files ...string) *fileWatch {
	f := &fileWatch{}
	for _, file := range files {
		if file == "" {
			continue
		}
		if absolute, err := filepath.Abs(file); err == nil {
			file = absolute
		}
		f.files = append(f.files, file)
	}
	f.stats = make([]os.FileInfo, len(f.files))
	f.changed()
	f.moved()
	return f
}

// changed reports whether the contents are others than at the last call.
func (f *fileWatch) changed() bool {
	sum := sha256.New()
	for _, file := range f.files {
		content, err := readRegular(file)
		if err != nil {
			content = []byte(err.Error())
		}
		_, _ = fmt.Fprintf(sum, "%d %t ", len(content), err == nil) // writing to a hash does not fail
		_, _ = sum.Write(content)
	}
	before := f.seen
	f.seen = [sha256.Size]byte(sum.Sum(nil))
	return f.seen != before
}

// readRegular reads a file, but no pipe: that would take from the configuration
// what can be read once, or wait for a writer.
func readRegular(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", file)
	}
	return os.ReadFile(file)
}

// moved reports whether the files are others than at the last call, by what the
// file system says of them. It finds what no watched directory tells of: links
// further up, directories that are made again, network file systems.
func (f *fileWatch) moved() bool {
	moved := false
	for i, file := range f.files {
		info, err := os.Stat(file)
		if err != nil {
			info = nil
		}
		before := f.stats[i]
		f.stats[i] = info
		switch {
		case info == nil || before == nil:
			moved = moved || (info == nil) != (before == nil)
		default:
			moved = moved || !os.SameFile(before, info) || !before.ModTime().Equal(info.ModTime()) || before.Size() != info.Size()
		}
	}
	return moved
}

// open begins to watch. After an error there is nothing to close.
func (f *fileWatch) open() error {
	if len(f.files) == 0 {
		return nil
	}
	var err error
	if f.watcher, err = fsnotify.NewWatcher(); err != nil {
		return err
	}
	if err := f.follow(); err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

// follow watches where the files are now, which links may have changed.
func (f *fileWatch) follow() error {
	if f.watcher == nil {
		return nil
	}
	var errs []error
	f.linked = false
	for _, file := range f.files {
		dirs := []string{filepath.Dir(file)}
		if target, err := filepath.EvalSymlinks(file); err == nil && target != file {
			f.linked = true
			dirs = append(dirs, filepath.Dir(target))
		}
		for _, dir := range dirs {
			if err := f.watcher.Add(dir); err != nil {
				errs = append(errs, fmt.Errorf("watch %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// events and failures are the watcher's; nil when it is not open.
func (f *fileWatch) events() <-chan fsnotify.Event {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Events
}

func (f *fileWatch) failures() <-chan error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Errors
}

// concerns reports whether an event may be about one of the files.
func (f *fileWatch) concerns(e fsnotify.Event) bool {
	return e.Op != fsnotify.Chmod && (f.linked || slices.Contains(f.files, filepath.Clean(e.Name)))
}

func (f *fileWatch) close() error {
	if f.watcher == nil {
		return nil
	}
	err := f.watcher.Close()
	f.watcher = nil
	return err
}
