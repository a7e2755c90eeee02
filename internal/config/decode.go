package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// decoder fills structs from nodes and reports what does not fit.
type decoder struct {
	*report
	env Env

	// lenient skips keys that the struct does not have.
	lenient bool

	// element returns a map element with its defaults, nil for a zero one.
	element func(n *node, t reflect.Type) reflect.Value
}

// value decodes n into v, which holds the default. A null keeps it.
func (d *decoder) value(n *node, v reflect.Value, key string) {
	if n.kind == kindNull {
		return
	}
	d.at[key] = n.at
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		scalar(d, n, key, p, parseDuration)
		return
	case *Size:
		scalar(d, n, key, p, parseSize)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v, key)
	case reflect.Map:
		d.mapping(n, v, key)
	case reflect.Slice:
		d.list(n, v, key)
	case reflect.String:
		if text, ok := d.text(n, key); ok {
			v.SetString(text)
		}
	case reflect.Bool:
		b := v.Bool()
		scalar(d, n, key, &b, parseBool)
		v.SetBool(b)
	case reflect.Int:
		i := int(v.Int())
		scalar(d, n, key, &i, parseInt)
		v.SetInt(int64(i))
	case reflect.Float64:
		f := v.Float()
		scalar(d, n, key, &f, parseFloat)
		v.SetFloat(f)
	default:
		panic("config: no decoder for " + v.Type().String()) //nolint:forbidigo // a new field of an unsupported type; the tests decode every field
	}
}

func (d *decoder) object(n *node, v reflect.Value, key string) {
	if !d.want(n, kindMap, key) {
		return
	}
	for _, f := range n.fields {
		i := fieldIndex(v.Type(), f.name)
		if i >= 0 {
			d.value(f.value, v.Field(i), join(key, f.name))
		} else if !d.lenient {
			d.addAt(f.at, key, "unknown key %q; %s", f.name, cmp.Or(foreign(v.Type(), f.name), suggest(f.name, fieldNames(v.Type()))))
		}
	}
}

func (d *decoder) mapping(n *node, v reflect.Value, key string) {
	if !d.want(n, kindMap, key) {
		return
	}
	t := v.Type().Elem()
	m := reflect.MakeMapWithSize(v.Type(), len(n.fields))
	for _, f := range n.fields {
		at := entry(key, f.name)
		d.at[at] = f.value.at
		elem := reflect.New(t).Elem()
		if t.Kind() == reflect.Pointer {
			elem.Set(d.element(f.value, t))
			d.value(f.value, elem.Elem(), at)
		} else if d.filled(f.value, at) {
			d.value(f.value, elem, at)
		}
		m.SetMapIndex(reflect.ValueOf(f.name), elem)
	}
	v.Set(m)
}

func (d *decoder) list(n *node, v reflect.Value, key string) {
	if !d.want(n, kindList, key) {
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", key, i)
		if d.filled(item, at) {
			d.value(item, list.Index(i), at)
		}
	}
	v.Set(list)
}

// filled reports a null where a list or a map of plain values needs one.
func (d *decoder) filled(n *node, key string) bool {
	if n.kind == kindNull {
		d.addAt(n.at, key, `has no value; write "" for an empty one, or remove it`)
	}
	return n.kind != kindNull
}

func (d *decoder) want(n *node, k kind, key string) bool {
	if n.kind == k {
		return true
	}
	hint := ""
	if k == kindList && n.kind == kindScalar {
		hint = "; write [first, second]"
	}
	d.addAt(n.at, key, "must be %s, not %s%s", k.describe(), n.kind.describe(), hint)
	return false
}

// text returns the expanded text of a scalar.
func (d *decoder) text(n *node, key string) (string, bool) {
	if !d.want(n, kindScalar, key) {
		return "", false
	}
	text, err := d.env.expand(n.text)
	if err != nil {
		d.addAt(n.at, key, "%v", err)
	}
	return text, err == nil
}

// scalar parses a scalar into p. The error shows the text before expansion,
// so that it cannot show what a variable holds.
func scalar[T any](d *decoder, n *node, key string, p *T, parse func(string) (T, error)) {
	text, ok := d.text(n, key)
	if !ok {
		return
	}
	value, err := parse(strings.TrimSpace(text))
	if err != nil {
		d.addAt(n.at, key, "%q %v", n.text, err)
		return
	}
	*p = value
}

func parseDuration(text string) (time.Duration, error) {
	duration, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("is not a duration; write a number with its unit, such as 500ms, 5s, 10m or 1h30m")
	case duration < 0:
		return 0, fmt.Errorf("must not be negative")
	}
	return duration, nil
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("must be true or false")
}

func parseInt(text string) (int, error) {
	i, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("is not a whole number")
	}
	return i, nil
}

func parseFloat(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("is not a number")
	}
	return f, nil
}

func parseSize(text string) (Size, error) {
	digits := strings.TrimRight(text, "BKMGTbkmgti ")
	count, err := strconv.ParseInt(digits, 10, 64)
	factor, known := map[string]int64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1e3, "MB": 1e6, "GB": 1e9,
	}[strings.TrimSpace(text[len(digits):])]
	switch {
	case err != nil || !known:
		return 0, fmt.Errorf("is not a size; write a whole number of bytes or one with a unit, such as 512KiB or 16MiB")
	case count < 0:
		return 0, fmt.Errorf("must not be negative")
	case count > math.MaxInt64/factor:
		return 0, fmt.Errorf("is too large")
	}
	return Size(count * factor), nil
}

func fieldIndex(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return i
		}
	}
	return -1
}

func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("yaml")
	}
	return names
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// entry is the path of an entry of a mapping. A name with a dot in it is
// quoted: the target "a.env" is not the setting env of the target "a".
func entry(key, name string) string {
	if strings.Contains(name, ".") {
		name = strconv.Quote(name)
	}
	return join(key, name)
}
