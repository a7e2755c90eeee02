package convert

// FormError says what a result lacks without which its method has no answer. Problem may be shown to the caller; it
// holds nothing of the result.
type FormError struct {
	Problem string
}

// Error returns the problem.
func (e *FormError) Error() string { return e.Problem }

// lacks ends the conversion with a [*FormError], unless the JSON itself is broken.
func (r *reader) lacks(problem string) {
	if r.err == nil {
		r.err = &FormError{problem}
	}
}

// presence is what became of a required member.
type presence int

const (
	absent presence = iota // or null
	misfit                 // not the JSON type that MCP requires
	present
)

// note finds out what the value that comes next will be to a member that has to be of the given kind.
func (r *reader) note(p *presence, want byte) {
	switch k := byte(r.kind()); k {
	case want:
		*p = present
	case 'n':
		*p = absent
	default:
		*p = misfit
	}
}

// need ends the conversion of a result whose list of this name is missing.
func (r *reader) need(p presence, name string) {
	switch p {
	case absent:
		r.lacks("it has no " + name)
	case misfit:
		r.lacks("its " + name + " is not a list")
	case present:
	}
}
