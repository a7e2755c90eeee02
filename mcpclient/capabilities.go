package mcpclient

import (
	"bytes"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Capabilities are what a client declares that it can do (2026-07-28 schema,
// ClientCapabilities). The zero value declares nothing.
type Capabilities struct {
	ElicitationForm, ElicitationURL bool
	Sampling, SamplingTools         bool // SamplingTools and SamplingContext imply Sampling
	SamplingContext                 bool
	Roots                           bool
	// Extensions are extension identifiers with their settings objects.
	Extensions map[string]jsontext.Value
}

// append writes the ClientCapabilities object.
func (c Capabilities) append(dst []byte) []byte {
	dst = append(dst, '{')
	n := 0
	member := func(name string) {
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
	}
	object := func(parts ...string) {
		dst = append(dst, '{')
		first := true
		for _, part := range parts {
			if part == "" {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(appendString(dst, part), ":{}"...)
		}
		dst = append(dst, '}')
	}
	when := func(on bool, name string) string {
		if on {
			return name
		}
		return ""
	}
	if c.ElicitationForm || c.ElicitationURL {
		member("elicitation")
		object(when(c.ElicitationForm, "form"), when(c.ElicitationURL, "url"))
	}
	if c.Sampling || c.SamplingTools || c.SamplingContext {
		member("sampling")
		object(when(c.SamplingTools, "tools"), when(c.SamplingContext, "context"))
	}
	if c.Roots {
		member("roots")
		object()
	}
	if len(c.Extensions) > 0 {
		member("extensions")
		dst = append(dst, '{')
		for i, name := range sortedKeys(c.Extensions) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(appendString(dst, name), ':'), c.Extensions[name]...)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// capabilitySet is what the client declares, encoded for either era.
type capabilitySet struct {
	modern, legacy []byte
}

// declare adds to the configured capabilities those that handlers and roots
// amount to.
func (c *Client) declare() capabilitySet {
	d, h := c.opts.Capabilities, &c.opts.Handlers
	d.ElicitationForm = d.ElicitationForm || h.Elicit != nil
	d.ElicitationURL = d.ElicitationURL || h.Elicit != nil && h.ElicitURLs
	d.Sampling = d.Sampling || h.Sample != nil
	d.Roots = d.Roots || h.Roots != nil || len(c.opts.Roots) > 0
	modern := d.append(nil)
	legacy := bytes.Replace(modern, []byte(`"roots":{}`), []byte(`"roots":{"listChanged":true}`), 1)
	return capabilitySet{modern: modern, legacy: legacy}
}

// withExtension adds an extension without settings to a ClientCapabilities
// object, unless it is there.
func withExtension(capabilities jsontext.Value, name string) jsontext.Value {
	var members Meta // any ordered object will do
	if members.setObject(capabilities) != nil {
		return capabilities
	}
	var extensions Meta
	if raw, ok := members.Get("extensions"); ok && extensions.setObject(raw) != nil {
		return capabilities
	}
	if _, ok := extensions.Get(name); ok {
		return capabilities
	}
	extensions.Set(name, jsontext.Value("{}"))
	members.Set("extensions", append(extensions.appendMembers([]byte{'{'}), '}'))
	return append(members.appendMembers([]byte{'{'}), '}')
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
