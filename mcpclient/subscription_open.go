package mcpclient

// Open reports whether what the subscription has open now was acknowledged by
// the server. Between the loss of a stream, a session or a process and the next
// acknowledgement it is false, and so it is after the end. A loss that nothing
// has told yet is not seen.
func (sub *Subscription) Open() bool {
	t := &sub.c.subs
	t.mu.Lock()
	defer t.mu.Unlock()
	open := func(st *stream) bool { return st.sub == sub && st.acked && !st.session.isReplaced() }
	for _, st := range t.streams {
		if open(st) {
			return true
		}
	}
	for st := range t.legacy {
		if open(st) {
			return true
		}
	}
	return false
}
