//go:build wasip1

package host

import (
	"strings"

	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_host_search"
)

// The most that a host finds at once.
const maxFound = 10_000

func (s Scope) toWIT() toolhold_host_search.Scope {
	return toolhold_host_search.Scope{
		Root:        s.Root,
		Globs:       s.Globs,
		IgnoreRules: !s.All,
		FilesOnly:   s.FilesOnly,
		MaxDepth:    types.None[uint32](),
		Meta:        types.None[string](),
	}
}

func Find(scope Scope) (found []FoundEntry, err error) {
	kinds := []string{"file", "directory", "symlink", "other"}
	Asked(func() bool {
		result := toolhold_host_search.Find(scope.toWIT(), maxFound)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		for _, each := range result.Ok().Items {
			found = append(found, FoundEntry{strings.Clone(each.Path), kinds[each.Kind], each.Size, each.ModifiedMs})
		}
		return true
	})
	return found, err
}

func Grep(scope Scope, pattern Pattern) (found []FoundLine, err error) {
	Asked(func() bool {
		result := toolhold_host_search.Grep(scope.toWIT(), toolhold_host_search.LinePattern{
			Regex:         pattern.Regex,
			CaseSensitive: !pattern.IgnoreCase,
			Multiline:     pattern.Multiline,
			Before:        uint32(pattern.Before),
			After:         uint32(pattern.After),
			Meta:          types.None[string](),
		}, maxFound)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		for _, each := range result.Ok().Items {
			found = append(found, FoundLine{strings.Clone(each.Path), each.Number, strings.Clone(each.Text), each.IsMatch})
		}
		return true
	})
	return found, err
}
