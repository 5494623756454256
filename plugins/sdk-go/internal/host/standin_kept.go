//go:build !wasip1

package host

import (
	"maps"
	"slices"
	"strings"
	"unicode"
)

func IndexPut(documents []Document) error {
	defer locked()()
	if Current.Index == nil {
		Current.Index = map[string]Document{}
	}
	for _, each := range documents {
		Current.Index[each.Key] = each
	}
	return nil
}

func IndexDelete(keys []string) error {
	defer locked()()
	for _, key := range keys {
		delete(Current.Index, key)
	}
	return nil
}

func below(prefix string) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(Current.Index)) {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

func IndexDeletePrefix(prefix string) (uint64, error) {
	defer locked()()
	keys := below(prefix)
	for _, key := range keys {
		delete(Current.Index, key)
	}
	return uint64(len(keys)), nil
}

func IndexGet(keys []string) (found []*Document, err error) {
	defer locked()()
	for _, key := range keys {
		if document, is := Current.Index[key]; is {
			found = append(found, &document)
		} else {
			found = append(found, nil)
		}
	}
	return found, nil
}

func IndexList(prefix, _ string) (entries []IndexEntry, next string, err error) {
	defer locked()()
	for _, key := range below(prefix) {
		document := Current.Index[key]
		entries = append(entries, IndexEntry{key, document.Tags, document.Data})
	}
	return entries, "", nil
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r)
	})
}

// IndexSearch ranks by the number of words that a document shares with the query.
func IndexSearch(query Query) (hits []Hit, err error) {
	defer locked()()
	asked := wordsOf(query.Words)
	for _, key := range below(query.Prefix) {
		document, own := Current.Index[key], wordsOf(Current.Index[key].Text)
		if slices.ContainsFunc(query.Tags, func(tag string) bool { return !slices.Contains(document.Tags, tag) }) {
			continue
		}
		hit, near := Hit{Key: key}, 0
		for _, word := range asked {
			if slices.Contains(own, word) {
				hit.Score++
			}
		}
		for at := range min(len(query.Vector), len(document.Vector)) {
			near += int(query.Vector[at]) * int(document.Vector[at])
		}
		if hit.Score > 0 {
			hit.FoundBy = append(hit.FoundBy, "words")
		}
		if near > 0 {
			hit.FoundBy = append(hit.FoundBy, "vector")
		}
		if hit.FoundBy != nil || len(asked) == 0 && query.Vector == nil {
			hits = append(hits, hit)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return int(b.Score - a.Score) })
	if query.Limit == 0 {
		query.Limit = 10
	}
	return hits[:min(len(hits), query.Limit)], nil
}

func SchedulePut(task Task, _ string) (TaskState, error) {
	defer locked()()
	if Current.Tasks == nil {
		Current.Tasks = map[string]TaskState{}
	}
	Current.Tasks[task.Name] = TaskState{Task: task, Next: "2030-01-01T00:00:00Z"}
	return Current.Tasks[task.Name], nil
}

func ScheduleRemove(name string) (bool, error) {
	defer locked()()
	_, is := Current.Tasks[name]
	delete(Current.Tasks, name)
	return is, nil
}

func SchedulePause(name string, paused bool) (bool, error) {
	defer locked()()
	state, is := Current.Tasks[name]
	if is {
		state.Paused = paused
		Current.Tasks[name] = state
	}
	return is, nil
}

func ScheduleRunSoon(name string) (bool, error) {
	defer locked()()
	_, is := Current.Tasks[name]
	return is, nil
}

func ScheduleTasks() (states []TaskState, err error) {
	defer locked()()
	for _, name := range slices.Sorted(maps.Keys(Current.Tasks)) {
		states = append(states, Current.Tasks[name])
	}
	return states, nil
}

func ScheduleRuns(string) ([]TaskRun, error) { return nil, nil }

func RunPart(part string, inputs [][]byte) (results []PartResult) {
	for _, each := range inputs {
		run, is := Current.Parts[part]
		if !is {
			results = append(results, PartResult{Err: &Error{"unavailable", "the part `" + part + "` is missing"}})
			continue
		}
		answer, err := run(each)
		results = append(results, PartResult{answer, err})
	}
	return results
}

// Connection is never made in unit tests.
type Connection struct{}

var noService = &Error{"unavailable", "services have no stand-in in unit tests"}

func Connect(string, Command) (*Connection, error) { return nil, noService }

func StopService(string) (bool, error) { return false, noService }

func (*Connection) IsNew() bool         { return false }
func (*Connection) Read(int64) []byte   { return nil }
func (*Connection) Errors() []byte      { return nil }
func (*Connection) Write([]byte) uint64 { return 0 }
func (*Connection) Ended() *Ended       { return nil }
func (*Connection) Keep()               {}
func (*Connection) Drop()               {}
