// Package search finds files and matching lines at native speed, in the files that the plugin may
// read. Ask for `search` in the manifest. It has no stand-in for unit tests.
package search

import "toolhold/internal/host"

// Scope says which files are searched.
type Scope = host.Scope

// Pattern says which lines match.
type Pattern = host.Pattern

// Entry is what was found below a folder.
type Entry = host.FoundEntry

// Line is a line that matches, or one of context.
type Line = host.FoundLine

// Find returns the entries below a folder, sorted by path, at most 10,000.
func Find(scope Scope) ([]Entry, error) { return host.Find(scope) }

// Grep returns matching lines with their context. At most 10,000 match.
func Grep(scope Scope, pattern Pattern) ([]Line, error) { return host.Grep(scope, pattern) }
