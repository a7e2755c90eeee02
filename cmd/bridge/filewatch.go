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
	f.changed()
	return f
}

// changed reports whether the contents are others than at the last call.
func (f *fileWatch) changed() bool {
	sum := sha256.New()
	for _, file := range f.files {
		content, err := os.ReadFile(file)
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
