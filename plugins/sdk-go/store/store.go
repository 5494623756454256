// Package store has data of the plugin's own that outlives its calls: keys and bytes. Ask for
// `store` in the manifest.
package store

import (
	"iter"

	"toolhold/internal/host"
)

// Change writes the bytes of a key, or deletes it if they are nil.
type Change = host.Entry

// Get returns the bytes of a key, and nil if there is none.
func Get(key string) ([]byte, error) { return host.StoreGet(key) }

// Put writes the bytes of a key.
func Put(key string, value []byte) error {
	_, err := host.StoreWrite(nil, []Change{{Key: key, Value: append([]byte{}, value...)}})
	return err
}

// Delete removes a key.
func Delete(key string) error {
	_, err := host.StoreWrite(nil, []Change{{Key: key}})
	return err
}

// CompareAndSet writes if the key has the expected bytes, or is missing if they are nil. It returns
// whether it did.
func CompareAndSet(key string, expected, value []byte) (bool, error) {
	return host.StoreWrite([]Change{{Key: key, Value: expected}}, []Change{{Key: key, Value: value}})
}

// Write makes all changes at once, or none if a key doesn't have its expected bytes. It returns
// whether it did.
func Write(expected, changes []Change) (bool, error) { return host.StoreWrite(expected, changes) }

// Items gives the keys that begin with a prefix, with their bytes, sorted by key. After an error
// there is no more.
func Items(prefix string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for cursor := ""; ; {
			page, next, err := host.StoreList(prefix, cursor)
			if err != nil {
				yield(Change{}, err)
				return
			}
			for _, each := range page {
				if !yield(each, nil) {
					return
				}
			}
			if cursor = next; cursor == "" {
				return
			}
		}
	}
}
