package mcpclient

import "slices"

// Filter says which notifications a [Subscription] delivers. The zero value is
// nothing at all.
type Filter struct {
	ToolsList, PromptsList, ResourcesList bool     // the lists changed
	Resources                             []string // URIs: the resource changed
	Tasks                                 []string // task ids: the status changed (tasks extension)
}

// check says what is wrong with a filter of a caller.
func (f Filter) check() error {
	invalid := func(text string) error {
		return &Error{Kind: KindInvalid, Method: methodListen, SafeToRetry: true, Message: text}
	}
	switch {
	case f.isEmpty():
		return invalid("the subscription's filter is empty; name at least one list, resource or task")
	case slices.Contains(f.Resources, ""):
		return invalid("the subscription's filter has an empty resource URI")
	case slices.Contains(f.Tasks, ""):
		return invalid("the subscription's filter has an empty task id")
	}
	return nil
}

func (f Filter) isEmpty() bool {
	return !f.ToolsList && !f.PromptsList && !f.ResourcesList && len(f.Resources) == 0 && len(f.Tasks) == 0
}

// without returns what a filter has and another one has not.
func (f Filter) without(other Filter) Filter {
	missing := func(list, other []string) []string {
		has := make(map[string]bool, len(other))
		for _, s := range other {
			has[s] = true
		}
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return has[s] })
	}
	return Filter{
		ToolsList: f.ToolsList && !other.ToolsList, PromptsList: f.PromptsList && !other.PromptsList,
		ResourcesList: f.ResourcesList && !other.ResourcesList,
		Resources:     missing(f.Resources, other.Resources), Tasks: missing(f.Tasks, other.Tasks),
	}
}

// clone returns a copy that shares nothing, without repetitions.
func (f Filter) clone() Filter {
	f.Resources, f.Tasks = unique(f.Resources), unique(f.Tasks)
	return f
}

func unique(list []string) []string {
	var out []string
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// wants reports whether a notification was asked for. Updates are not compared
// with the URIs: the server may name a part of what was subscribed to.
func (f Filter) wants(method string) bool {
	switch method {
	case MethodToolsChanged:
		return f.ToolsList
	case MethodPromptsChanged:
		return f.PromptsList
	case MethodResourcesChanged:
		return f.ResourcesList
	case MethodResourceUpdated:
		return len(f.Resources) > 0
	case MethodTaskStatus:
		return len(f.Tasks) > 0
	}
	return true
}

// appendParams writes the params member of subscriptions/listen.
func (f Filter) appendParams(dst []byte) []byte {
	dst = append(dst, `"notifications":{`...)
	start := len(dst)
	member := func(name string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
	}
	flag := func(name string, on bool) {
		if on {
			member(name)
			dst = append(dst, "true"...)
		}
	}
	list := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		member(name)
		separator := byte('[')
		for _, value := range values {
			dst = appendString(append(dst, separator), value)
			separator = ','
		}
		dst = append(dst, ']')
	}
	flag("toolsListChanged", f.ToolsList)
	flag("promptsListChanged", f.PromptsList)
	flag("resourcesListChanged", f.ResourcesList)
	list("resourceSubscriptions", f.Resources)
	list("taskIds", f.Tasks)
	return append(dst, '}')
}

// wireFilter is a filter as servers acknowledge it.
type wireFilter struct {
	Tools     bool     `json:"toolsListChanged"`
	Prompts   bool     `json:"promptsListChanged"`
	Resources bool     `json:"resourcesListChanged"`
	URIs      []string `json:"resourceSubscriptions"`
	Tasks     []string `json:"taskIds"`
}

func (w *wireFilter) filter() Filter {
	return Filter{ToolsList: w.Tools, PromptsList: w.Prompts, ResourcesList: w.Resources, Resources: w.URIs, Tasks: w.Tasks}
}
