// What the tests put beside the samples of the cookbook.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"toolhold"
	"toolhold/store"
)

func codeOf(err error) string {
	var failure *toolhold.Failure
	var refused *toolhold.HostError
	switch {
	case errors.As(err, &failure):
		return failure.Code
	case errors.As(err, &refused):
		return refused.Code
	}
	return fmt.Sprint(err)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func tryStore(_ *toolhold.Call, _ struct{}) (map[string]any, error) {
	var keys, listed, left []string
	var changes []store.Change
	for number := range 1001 {
		keys = append(keys, fmt.Sprintf("many/%04d", number))
		changes = append(changes, store.Change{Key: keys[number], Value: []byte(keys[number])})
	}
	must(store.Write(nil, changes[:1000]))
	must(0, store.Put(keys[1000], changes[1000].Value))
	var all []byte
	for each := range 256 {
		all = append(all, byte(each))
	}
	must(0, store.Put("bytes", all))
	must(0, store.Put("empty", nil))
	for entry, err := range store.Items("many/") {
		if must(entry, err); string(entry.Value) == entry.Key {
			listed = append(listed, entry.Key)
		}
	}
	empty := must(store.Get("empty"))
	found := map[string]any{
		"listed":       slices.Equal(listed, keys),
		"all_bytes":    bytes.Equal(must(store.Get("bytes")), all),
		"empty":        empty != nil && len(empty) == 0,
		"missing":      must(store.Get("none")) == nil,
		"other_value":  must(store.CompareAndSet("empty", []byte("x"), []byte("y"))),
		"both_or_none": must(store.Write([]store.Change{{Key: "none", Value: []byte{}}}, []store.Change{{Key: "empty", Value: []byte("y")}, {Key: "bytes"}})),
		"unchanged":    len(must(store.Get("empty"))) == 0 && must(store.Get("bytes")) != nil,
		"created":      must(store.CompareAndSet("none", nil, []byte("new"))),
		"deleted":      must(store.CompareAndSet("none", []byte("new"), nil)) && must(store.Get("none")) == nil,
	}
	_, noKey := store.Get("")
	found["no_key"] = codeOf(noKey)
	found["long_value"] = codeOf(store.Put("long", make([]byte, 1<<20+1)))
	found["quota"] = codeOf(store.Put("long", make([]byte, 1<<20)))
	must(0, store.Delete("bytes"))
	for each := range changes[:999] {
		changes[each].Value = nil
	}
	must(store.Write(nil, changes[:999]))
	for entry, err := range store.Items("") {
		left = append(left, must(entry, err).Key)
	}
	found["left"] = left
	return found, nil
}

func init() {
	toolhold.Add(toolhold.Tool{Name: "try_store", Description: "Tries the store."}, tryStore)
}
