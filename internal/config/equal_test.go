package config

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asFields makes cmp compare the fields of targets one by one, and show the
// one that differs, instead of calling Equal.
func asFields() cmp.Option {
	type fields Target
	return cmp.Transformer("fields", func(t *Target) *fields { return (*fields)(t) })
}

// fill sets everything inside v; lists and mappings get one entry.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(t, elem)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), elem)
	case reflect.String:
		v.SetString("s")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("a %s cannot be filled", v.Type())
	}
}

// eachChange changes one thing inside v at a time, calls changed and takes the
// change back.
func eachChange(t *testing.T, v reflect.Value, path string, changed func(path string)) {
	t.Helper()
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	change := func(how string) {
		changed(path + how)
		v.Set(old)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachChange(t, v.Field(i), path+"."+v.Type().Field(i).Name, changed)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachChange(t, v.Index(i), fmt.Sprintf("%s[%d]", path, i), changed)
		}
		v.Set(reflect.Append(v, v.Index(0)))
		change(" with one more")
		v.SetZero()
		change(" without any")
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := v.MapIndex(key)
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(value)
			eachChange(t, elem, path+"."+key.String(), func(path string) {
				v.SetMapIndex(key, elem)
				changed(path)
				v.SetMapIndex(key, value)
			})
			other := reflect.ValueOf(key.String() + "x")
			v.SetMapIndex(other, value)
			change(" with one more")
			v.SetMapIndex(key, reflect.Value{})
			change(" with another key")
			v.SetMapIndex(other, reflect.Value{})
			change(" without any")
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(v.String() + "x")
		change("")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
		change("")
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
		change("")
	case reflect.Bool:
		v.SetBool(!v.Bool())
		change("")
	default:
		t.Fatalf("%s: a %s cannot be changed", path, v.Type())
	}
}

func TestTargetsThatDifferInAnythingAreNotEqual(t *testing.T) {
	var a, b Target
	fill(t, reflect.ValueOf(&a).Elem())
	fill(t, reflect.ValueOf(&b).Elem())
	changes := map[string]bool{}
	eachChange(t, reflect.ValueOf(&a).Elem(), "Target", func(path string) {
		changes[path] = true
		if a.Equal(&b) || b.Equal(&a) {
			t.Errorf("a change of %s is not seen", path)
		}
	})
	for _, path := range []string{
		"Target.URL", "Target.URLs[0]", "Target.Headers.k", "Target.Env.k", "Target.Timeouts.Tools.k", "Target.Roots[0].Name",
		"Target.Pool.Isolation", "Target.Pool.MaxLifetime", "Target.Restart.Max", "Target.Reconnect.Multiplier", "Target.Lazy",
	} {
		if !changes[path] {
			t.Errorf("%s was not changed", path)
		}
	}
	if !a.Equal(&b) || !b.Equal(&a) {
		t.Error("targets with the same settings in maps and lists of their own are not equal")
	}
}

func TestAnEmptyListOrMappingEqualsAnAbsentOne(t *testing.T) {
	absent, empty := NewTarget(TransportAuto), NewTarget(TransportAuto)
	empty.Command, empty.URLs, empty.Roots = []string{}, []string{}, []Root{}
	empty.Env, empty.Headers = map[string]Secret{}, map[string]Secret{}
	empty.Timeouts.Tools = map[string]time.Duration{}
	if !absent.Equal(empty) || !empty.Equal(absent) {
		t.Error("not equal")
	}
	if empty.Command == nil || empty.Env == nil || empty.Timeouts.Tools == nil {
		t.Error("Equal changed its receiver")
	}
	empty.Env[""] = ""
	if absent.Equal(empty) {
		t.Error("an entry without a name and a value is not seen")
	}
}

func TestANilTargetEqualsOnlyANilTarget(t *testing.T) {
	var none *Target
	if !none.Equal(nil) || none.Equal(&Target{}) || (&Target{}).Equal(none) {
		t.Error("nil is compared wrongly")
	}
}

func TestTheSameFileReadTwiceGivesEqualTargets(t *testing.T) {
	read := func() *Config {
		cfg, err := Parse("f", []byte(everything), testEnv())
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	a, b := read(), read()
	for name := range a.Targets {
		for other := range b.Targets {
			if got := a.Targets[name].Equal(b.Targets[other]); got != (name == other) {
				t.Errorf("%s and %s: %v", name, other, got)
			}
		}
	}
}
