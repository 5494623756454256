// Package index has documents of the plugin's own that outlive its calls, and ranked search in them.
// Ask for `index` in the manifest.
package index

import (
	"iter"

	"toolhold/internal/host"
)

// Document is a text that is searched for words, with what belongs to it.
type Document = host.Document

// Entry is what a listing has of a document.
type Entry = host.IndexEntry

// Query says what to search for.
type Query = host.Query

// Hit is a document that was found.
type Hit = host.Hit

// Put writes documents, all of them or none: at most 1,000. A document replaces the one with the
// same key.
func Put(documents ...Document) error { return host.IndexPut(documents) }

// Delete removes documents, all of them or none: at most 1,000. They need not exist.
func Delete(keys ...string) error { return host.IndexDelete(keys) }

// DeletePrefix removes the documents whose keys begin with a prefix, step by step, and returns their
// number.
func DeletePrefix(prefix string) (uint64, error) {
	for all := uint64(0); ; {
		deleted, err := host.IndexDeletePrefix(prefix)
		if all += deleted; deleted == 0 || err != nil {
			return all, err
		}
	}
}

// Get returns the documents with these keys, in their order, and nil where there is none.
func Get(keys ...string) ([]*Document, error) { return host.IndexGet(keys) }

// Items gives the documents whose keys begin with a prefix, sorted by key. After an error there is
// no more.
func Items(prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for cursor := ""; ; {
			page, next, err := host.IndexList(prefix, cursor)
			if err != nil {
				yield(Entry{}, err)
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

// Search returns the best documents for a query, the best first.
func Search(query Query) ([]Hit, error) { return host.IndexSearch(query) }
