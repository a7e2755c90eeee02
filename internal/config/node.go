package config

// kind is the shape of a node.
type kind uint8

const (
	kindNull kind = iota
	kindScalar
	kindList
	kindMap
)

// describe names a kind in an error.
func (k kind) describe() string {
	switch k {
	case kindNull:
		return "nothing"
	case kindScalar:
		return "a single value"
	case kindList:
		return "a list"
	case kindMap:
		return "a mapping"
	}
	return "nothing"
}

// node is a parsed document, YAML or JSON alike.
type node struct {
	kind   kind
	at     position
	text   string  // kindScalar: the text without quotes
	items  []*node // kindList
	fields []field // kindMap, in the order of the file
}

type field struct {
	name  string
	at    position
	value *node
}

// get returns the value of a key, nil when it is absent.
func (n *node) get(name string) *node {
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}
