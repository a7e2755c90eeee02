package config

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxNodes bounds the tree after aliases are resolved, so that a few lines of
// aliases to aliases cannot fill the memory.
const maxNodes = 100_000

// parseYAML reads one YAML document. It reports a problem and returns nil when
// the text is not one. An empty text is a null node.
func parseYAML(data []byte, r *report) *node {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		r.addAt(position{}, "", "is not UTF-8 text; save it as UTF-8")
		return nil
	}
	file, err := parseYAMLFile(data)
	if err != nil {
		text, at := err.Error(), position{}
		if e, ok := errors.AsType[yaml.Error](err); ok {
			text, at = e.GetMessage(), tokenPlace(e.GetToken())
		}
		r.addAt(at, "", "not valid YAML: %s%s", text, yamlHint(lineOf(data, at.line)))
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			r.addAt(tokenPlace(doc.Body.GetToken()), "", "a second document starts here; a configuration is one document, remove the ---")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		return &node{}
	}
	b := treeBuilder{anchors: map[string]ast.Node{}, resolving: map[string]bool{}}
	n, err := b.node(body)
	if err != nil {
		at := position{}
		if e, ok := errors.AsType[*treeError](err); ok {
			at = e.at
		}
		r.addAt(at, "", "not valid YAML: %v", err)
		return nil
	}
	return n
}

// parseYAMLFile turns a panic of the parser, which has had some on broken
// input, into an error.
func parseYAMLFile(data []byte) (file *ast.File, err error) {
	defer func() {
		if recover() != nil {
			file, err = nil, errors.New("the text cannot be parsed")
		}
	}()
	return parser.ParseBytes(data, 0)
}

// lineOf returns a line by its number, "" for none.
func lineOf(data []byte, number int) string {
	for line := range bytes.Lines(data) {
		if number--; number == 0 {
			return string(line)
		}
	}
	return ""
}

func tokenPlace(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	return position{line: t.Position.Line, column: t.Position.Column}
}

// treeError is a problem found after parsing.
type treeError struct {
	at   position
	text string
}

func (e *treeError) Error() string { return e.text }

// treeBuilder turns the parser's tree into nodes. It resolves anchors, aliases
// and merge keys.
type treeBuilder struct {
	anchors   map[string]ast.Node
	resolving map[string]bool // aliases above the current node
	nodes     int
}

func (b *treeBuilder) node(n ast.Node) (*node, error) {
	if n == nil {
		return &node{}, nil
	}
	at := tokenPlace(n.GetToken())
	if b.nodes++; b.nodes > maxNodes {
		return nil, &treeError{at, "the document is too large once its aliases are resolved"}
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return &node{at: at}, nil
	case *ast.AnchorNode:
		b.anchors[n.Name.GetToken().Value] = n.Value
		return b.node(n.Value)
	case *ast.AliasNode:
		return b.alias(n, at)
	case *ast.TagNode:
		return b.node(n.Value)
	case *ast.StringNode:
		return &node{kind: kindScalar, at: at, text: n.Value}, nil
	case *ast.LiteralNode:
		return &node{kind: kindScalar, at: at, text: n.Value.Value}, nil
	case *ast.SequenceNode:
		list := &node{kind: kindList, at: at}
		for _, v := range n.Values {
			item, err := b.node(v)
			if err != nil {
				return nil, err
			}
			list.items = append(list.items, item)
		}
		return list, nil
	case *ast.MappingNode:
		return b.mapping(n.Values, at)
	case *ast.MappingValueNode:
		return b.mapping([]*ast.MappingValueNode{n}, at)
	case ast.ScalarNode:
		return &node{kind: kindScalar, at: at, text: n.GetToken().Value}, nil
	}
	return nil, &treeError{at, fmt.Sprintf("a %s is not supported here", n.Type().YAMLName())}
}

func (b *treeBuilder) alias(n *ast.AliasNode, at position) (*node, error) {
	name := n.Value.GetToken().Value
	target, ok := b.anchors[name]
	if !ok {
		return nil, &treeError{at, fmt.Sprintf("the alias *%s has no anchor &%s before it", name, name)}
	}
	if b.resolving[name] {
		return nil, &treeError{at, fmt.Sprintf("the alias *%s contains itself", name)}
	}
	b.resolving[name] = true
	defer delete(b.resolving, name)
	return b.node(target)
}

func (b *treeBuilder) mapping(values []*ast.MappingValueNode, at position) (*node, error) {
	m := &node{kind: kindMap, at: at}
	if len(values) > 0 {
		m.at = tokenPlace(values[0].Key.GetToken())
	}
	var merged []field
	for _, v := range values {
		keyAt := tokenPlace(v.Key.GetToken())
		value, err := b.node(v.Value)
		if err != nil {
			return nil, err
		}
		if v.Key.IsMergeKey() {
			sources := []*node{value}
			if value.kind == kindList {
				sources = value.items
			}
			for _, s := range sources {
				if s.kind != kindMap {
					return nil, &treeError{keyAt, "<< needs an alias of a mapping"}
				}
				merged = append(merged, s.fields...)
			}
			continue
		}
		key, err := b.node(v.Key)
		if err != nil {
			return nil, err
		}
		if key.kind != kindScalar {
			return nil, &treeError{keyAt, "a key must be a single value"}
		}
		if value.at == (position{}) {
			value.at = keyAt
		}
		m.fields = append(m.fields, field{name: key.text, at: keyAt, value: value})
	}
	for _, f := range merged { // what the mapping says itself wins, then the earlier source
		if m.get(f.name) == nil {
			m.fields = append(m.fields, f)
		}
	}
	return m, nil
}
