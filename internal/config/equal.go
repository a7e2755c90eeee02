package config

import "reflect"

// Equal reports whether t and o are the same configuration, every setting and
// every secret included. An empty list or mapping equals an absent one, which
// means the same for every setting. Two nil targets are equal. Both must be
// left unchanged meanwhile.
func (t *Target) Equal(o *Target) bool {
	if t == nil || o == nil {
		return t == o
	}
	return reflect.DeepEqual(t.withoutEmpty(), o.withoutEmpty())
}

// withoutEmpty returns a shallow copy in which nothing is empty without being nil.
func (t *Target) withoutEmpty() *Target {
	c := *t
	nilIfEmpty(reflect.ValueOf(&c).Elem())
	return &c
}

// nilIfEmpty changes nothing that v shares with others.
func nilIfEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			nilIfEmpty(v.Field(i))
		}
	case reflect.Map, reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
		}
	}
}
