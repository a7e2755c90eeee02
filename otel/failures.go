package bridgeotel

import (
	"context"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"
)

// failureLogInterval is how often a lasting export failure is logged.
const failureLogInterval = time.Minute

// logLine writes one line.
type logLine func(ctx context.Context, attrs ...any)

// failureLog writes one line a minute while exports fail, and one when they work
// again. It is safe for concurrent use.
type failureLog struct {
	failed logLine // of a failure
	works  logLine // when exports work again
	counts string  // attribute that says what was lost; "" = nothing is counted

	mu      sync.Mutex // guards the rest
	lost    int        // since the last line
	failing bool
	logged  time.Time
}

// report takes the outcome of one export.
func (f *failureLog) report(ctx context.Context, lost int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		if f.failing {
			f.works(ctx, f.attrs()...)
		}
		f.failing, f.lost = false, 0
		return
	}
	f.lost += lost
	if f.failing && time.Since(f.logged) < failureLogInterval {
		return
	}
	f.failed(ctx, append([]any{"error", failureText(err)}, f.attrs()...)...)
	f.failing, f.lost, f.logged = true, 0, time.Now()
}

// end tells what was lost since the last line.
func (f *failureLog) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost > 0 {
		f.failed(context.Background(), f.attrs()...)
	}
	f.failing, f.lost = false, 0
}

func (f *failureLog) attrs() []any {
	if f.counts == "" {
		return nil
	}
	return []any{f.counts, f.lost}
}

// collectorURL finds URLs in an error: scheme, user, host, path, and the colon
// that may follow in the sentence.
var collectorURL = regexp.MustCompile(`(https?://)(?:[^/\s"@]*@)?([^/\s"?#]*)[^\s"]*?(:?)(\s|"|$)`)

// failureText is the error of an export, bounded because a collector may answer
// anything, and without paths of URLs, which may be secret.
func failureText(err error) string {
	return cut(collectorURL.ReplaceAllString(err.Error(), "$1$2$3$4"))
}

// maxLogText bounds texts of others in a line of the log, in bytes.
const maxLogText = 1024

// cut shortens s to maxLogText, between characters.
func cut(s string) string {
	if len(s) <= maxLogText {
		return s
	}
	end := maxLogText
	for end > maxLogText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "… (cut)"
}
