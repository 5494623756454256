// A tool for each part of the SDK, for tests in a real host.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"toolhold"
	"toolhold/process"
	"toolhold/search"
	"toolhold/store"
)

type How struct {
	How string `json:"how"`
}

func deep(level int) int { return deep(level+1) + 1 }

func fail(_ *toolhold.Call, arguments How) (string, error) {
	switch arguments.How {
	case "own":
		return "", &toolhold.Failure{
			Category:   toolhold.RateLimited,
			Code:       "slow",
			Message:    "too often",
			Suggestion: "wait",
			RetryAfter: 2500 * time.Millisecond,
			Content:    []toolhold.Content{{Text: "so far"}},
		}
	case "file":
		_, err := os.ReadFile("nope")
		return "", err
	case "error":
		return "", fmt.Errorf("while counting: %w", errors.New("seven is no prime"))
	case "late":
		limited, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		<-limited.Done()
		return "", limited.Err()
	case "long":
		panic(strings.Repeat("ü", 10_000))
	case "index":
		return []string{}[len(arguments.How)], nil
	case "nil":
		var counts map[string]int
		counts["a"] = 1
	case "pointer":
		var missing *How
		return missing.How, nil
	case "deep":
		return fmt.Sprint(deep(0)), nil
	case "exit":
		os.Exit(3)
	case "goroutine":
		go func() { panic("nobody recovers here") }()
		time.Sleep(time.Second)
	case "stuck":
		<-make(chan int)
	}
	return "not UTF-8: \xFF", nil
}

type Words struct {
	Words []string `json:"words" doc:"What is said."`
}

func talk(call *toolhold.Call, arguments Words) (toolhold.Output, error) {
	for index, word := range arguments.Words {
		call.Progress(float64(index)/float64(len(arguments.Words)), "%s", word)
		call.Emit(word)
	}
	toolhold.Warn("said %d", len(arguments.Words))
	toolhold.Info("id %v, left %v, cancelled %v", call.ID() != "", call.Remaining() > time.Second, call.Cancelled())
	return toolhold.Output{Content: []toolhold.Content{{Text: "end"}}, AfterEmitted: true}, nil
}

type Key struct {
	Key string `json:"key"`
}

func setting(_ *toolhold.Call, arguments Key) (string, error) {
	value := "unset"
	_, err := toolhold.Config(arguments.Key, &value)
	return value, err
}

type Start struct {
	Program []string `json:"program"`
	Input   string   `json:"input,omitempty"`
}

func start(_ *toolhold.Call, arguments Start) (string, error) {
	return process.OutputOf(process.Command{Program: arguments.Program, Input: []byte(arguments.Input)})
}

func keep(_ *toolhold.Call, _ struct{}) (string, error) {
	before, err := store.Get("count")
	if err != nil {
		return "", err
	}
	after := append(before, 'x')
	if done, err := store.CompareAndSet("count", before, after); err != nil || !done {
		return "", errors.Join(err, errors.New("somebody else wrote"))
	}
	return string(after), nil
}

type Look struct {
	Folder string `json:"folder" toolhold:"reads-path"`
	Regex  string `json:"regex"`
}

func look(_ *toolhold.Call, arguments Look) ([]string, error) {
	scope := search.Scope{Root: arguments.Folder, Globs: []string{"*.txt"}, FilesOnly: true}
	entries, err := search.Find(scope)
	if err != nil {
		return nil, err
	}
	lines, err := search.Grep(scope, search.Pattern{Regex: arguments.Regex, IgnoreCase: true})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, each := range entries {
		found = append(found, each.Kind+" "+each.Path)
	}
	for _, each := range lines {
		found = append(found, fmt.Sprint(each.Number, " ", each.Text))
	}
	return found, nil
}

// soak has the host hand over much memory while there is garbage, goroutines and timers.
func soak(_ *toolhold.Call, arguments struct {
	Rounds int `json:"rounds" toolhold:"min=1"`
}) (string, error) {
	value := bytes.Repeat([]byte("0123456789"), 10_000)
	if err := store.Put("large", value); err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var all sync.WaitGroup
	wrong := make(chan error, 4)
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			var kept [8][]byte
			for round := range arguments.Rounds {
				found, err := store.Get("large")
				if err == nil && !bytes.Equal(found, value) {
					err = errors.New("another value came back")
				}
				if err != nil || limited.Err() != nil {
					wrong <- errors.Join(err, limited.Err())
					return
				}
				kept[round%len(kept)] = found
				if round%50 == 0 {
					runtime.GC()
					time.Sleep(time.Microsecond)
				}
				for _, each := range kept {
					if each != nil && !bytes.Equal(each, value) {
						wrong <- errors.New("a value changed later")
						return
					}
				}
			}
		}()
	}
	all.Wait()
	select {
	case err := <-wrong:
		return "", err
	default:
		return "sound", nil
	}
}

func init() {
	toolhold.Add(toolhold.Tool{Name: "fail", Description: "Fails."}, fail)
	toolhold.Add(toolhold.Tool{Name: "talk", Description: "Says each word."}, talk)
	toolhold.Add(toolhold.Tool{Name: "setting", Description: "Says a setting."}, setting)
	toolhold.Add(toolhold.Tool{Name: "start", Description: "Runs a program."}, start)
	toolhold.Add(toolhold.Tool{Name: "keep", Description: "Counts its calls."}, keep)
	toolhold.Add(toolhold.Tool{Name: "look", Description: "Searches."}, look)
	toolhold.Add(toolhold.Tool{Name: "soak", Description: "Reads the same again and again."}, soak)
}

func main() {}
