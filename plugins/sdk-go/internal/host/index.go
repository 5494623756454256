//go:build wasip1

package host

import (
	"bytes"
	"slices"
	"strings"

	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_host_index"
)

func cloned(list []string) []string {
	var copies []string
	for _, each := range list {
		copies = append(copies, strings.Clone(each))
	}
	return copies
}

func vector(numbers []int8) types.Option[[]int8] {
	if numbers == nil {
		return types.None[[]int8]()
	}
	return types.Some(numbers)
}

func IndexPut(documents []Document) error {
	var made []toolhold_host_index.Document
	for _, each := range documents {
		made = append(made, toolhold_host_index.Document{
			Key:    each.Key,
			Text:   strings.ToValidUTF8(each.Text, "\uFFFD"),
			Tags:   each.Tags,
			Vector: vector(each.Vector),
			Data:   each.Data,
			Meta:   types.None[string](),
		})
	}
	return done(func() types.Result[types.Unit, Failed] { return toolhold_host_index.Put(made) })
}

func IndexDelete(keys []string) error {
	return done(func() types.Result[types.Unit, Failed] { return toolhold_host_index.Delete(keys) })
}

func IndexDeletePrefix(prefix string) (uint64, error) {
	return plain(func() types.Result[uint64, Failed] { return toolhold_host_index.DeletePrefix(prefix) })
}

func IndexGet(keys []string) (found []*Document, err error) {
	Asked(func() bool {
		result := toolhold_host_index.Get(keys)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		for _, each := range result.Ok() {
			if each.Tag() == types.OptionNone {
				found = append(found, nil)
				continue
			}
			document := each.Some()
			copied := &Document{
				Key:  strings.Clone(document.Key),
				Text: strings.Clone(document.Text),
				Tags: cloned(document.Tags),
				Data: bytes.Clone(document.Data),
			}
			if document.Vector.Tag() == types.OptionSome {
				copied.Vector = slices.Clone(document.Vector.Some())
			}
			found = append(found, copied)
		}
		return true
	})
	return found, err
}

// IndexList returns a page, and where the next one begins; an empty cursor is that of the first.
func IndexList(prefix, cursor string) (entries []IndexEntry, next string, err error) {
	Asked(func() bool {
		result := toolhold_host_index.List(prefix, option(cursor), 1000)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		page := result.Ok()
		for _, each := range page.Entries {
			entries = append(entries, IndexEntry{strings.Clone(each.Key), cloned(each.Tags), bytes.Clone(each.Data)})
		}
		next = text(page.Cursor)
		return true
	})
	return entries, next, err
}

func IndexSearch(query Query) (hits []Hit, err error) {
	if query.Limit == 0 {
		query.Limit = 10
	}
	Asked(func() bool {
		result := toolhold_host_index.Search(toolhold_host_index.Query{
			Words:  strings.ToValidUTF8(query.Words, "\uFFFD"),
			Tags:   query.Tags,
			Prefix: query.Prefix,
			Vector: vector(query.Vector),
			Limit:  uint32(query.Limit),
			Meta:   types.None[string](),
		})
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		for _, each := range result.Ok() {
			hits = append(hits, Hit{strings.Clone(each.Key), each.Score, cloned(each.FoundBy)})
		}
		return true
	})
	return hits, err
}
