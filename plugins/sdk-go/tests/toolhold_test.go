// Package tests has the tests of the SDK, as plugins see it: `go test ./tests` in `plugins/sdk-go`.
package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"toolhold"
	"toolhold/toolholdtest"
	"toolhold/index"
	"toolhold/parts"
	"toolhold/process"
	"toolhold/schedule"
	"toolhold/service"
	"toolhold/store"
)

type span struct {
	First int  `json:"first" doc:"The first line."`
	Last  *int `json:"last"`
}

type arguments struct {
	Path    string            `json:"path" doc:"The file." toolhold:"reads-path,alias=file"`
	Words   []string          `json:"words" toolhold:"max=3"`
	Order   string            `json:"order" default:"up" toolhold:"one-of=up|down"`
	Lines   *span             `json:"lines" doc:"Which lines."`
	Ratio   float64           `json:"ratio" default:"0.5"`
	Timeout float64           `json:"timeout,omitempty" toolhold:"timeout"`
	More    map[string]uint8  `json:"more,omitempty"`
	Any     json.RawMessage   `json:"any,omitempty"`
	Data    *toolhold.Attachment `json:"data"`
	hidden  int
}

type found struct {
	Lines int      `json:"lines"`
	Names []string `json:"names"`
}

func find(call *toolhold.Call, a arguments) (found, error) {
	names := append([]string{a.Path, a.Order, fmt.Sprint(a.Ratio)}, a.Words...)
	lines := a.hidden
	if a.Lines != nil {
		lines = a.Lines.First
	}
	if a.Data != nil {
		names = append(names, string(a.Data.Bytes))
	}
	call.Progress(0.5, "half")
	return found{lines, names}, nil
}

type how struct {
	How string `json:"how"`
}

func fail(_ *toolhold.Call, a how) (any, error) {
	switch a.How {
	case "panic":
		panic("seven is no prime")
	case "file":
		return os.ReadFile("/no/such/file")
	case "link":
		return nil, os.Rename("/no/such/file", "/no/such/other")
	case "late":
		return nil, fmt.Errorf("asking: %w", context.DeadlineExceeded)
	case "json":
		return nil, json.Unmarshal([]byte("{"), &a)
	case "own":
		return nil, fmt.Errorf("wrapped: %w", &toolhold.Failure{Category: toolhold.RateLimited, Code: "slow", RetryAfter: time.Second})
	case "value":
		return func() {}, nil
	}
	return []byte(nil), errors.New("plain")
}

func init() {
	toolhold.Add(toolhold.Tool{Name: "find", Description: "Finds."}, find)
	toolhold.Add(toolhold.Tool{Name: "fail", Description: "Fails."}, fail)
}

func TestTagsBecomeASchema(t *testing.T) {
	expected := `{"additionalProperties":false,"properties":{
		"any":{},
		"data":{"type":"object"},
		"lines":{"additionalProperties":false,"description":"Which lines.","properties":{
			"first":{"description":"The first line.","type":"integer"},"last":{"type":"integer"}},"required":["first"],"type":"object"},
		"more":{"additionalProperties":{"minimum":0,"type":"integer"},"type":"object"},
		"order":{"default":"up","enum":["up","down"],"type":"string"},
		"path":{"description":"The file.","type":"string"},
		"ratio":{"default":0.5,"type":"number"},
		"timeout":{"type":"number"},
		"words":{"items":{"type":"string"},"maxItems":3,"type":"array"}},
		"required":["path","words"],"type":"object"}`
	var want, have any
	if err := json.Unmarshal([]byte(expected), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(toolhold.InputSchema("find")), &have); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(have, want) {
		t.Fatalf("%s", toolhold.InputSchema("find"))
	}
}

func TestWhatHasNoSchemaIsNamed(t *testing.T) {
	type nested struct {
		Self *how `json:"self"`
		Make chan int
	}
	type loop struct {
		Next []how `json:"next"`
		Loop *span `json:"loop" toolhold:"unknown"`
	}
	for want, add := range map[string]func(){
		"t.Make: chan int has no JSON Schema": func() {
			toolhold.Add(toolhold.Tool{Name: "t", Description: "d"}, func(*toolhold.Call, nested) (string, error) { return "", nil })
		},
		"t.loop: the tag `toolhold` has no word": func() {
			toolhold.Add(toolhold.Tool{Name: "t", Description: "d"}, func(*toolhold.Call, loop) (string, error) { return "", nil })
		},
		"t: the arguments are string": func() {
			toolhold.Add(toolhold.Tool{Name: "t", Description: "d"}, func(*toolhold.Call, string) (string, error) { return "", nil })
		},
		"a name and a description are needed": func() { toolhold.Add(toolhold.Tool{Name: "t"}, fail) },
		"there are two tools \"fail\"":        func() { toolhold.Add(toolhold.Tool{Name: "fail", Description: "d"}, fail) },
		"has itself as a part": func() {
			toolhold.Add(toolhold.Tool{Name: "t", Description: "d"}, func(*toolhold.Call, tree) (string, error) { return "", nil })
		},
		"t.n: the default x isn't valid": func() {
			toolhold.Add(toolhold.Tool{Name: "t", Description: "d"}, func(*toolhold.Call, wrongDefault) (string, error) { return "", nil })
		},
		"t.data: bytes have no JSON Schema here": func() {
			toolhold.Add(toolhold.Tool{Name: "t", Description: "d"}, func(*toolhold.Call, raw) (string, error) { return "", nil })
		},
	} {
		func() {
			defer func() {
				if why := fmt.Sprint(recover()); !strings.Contains(why, want) {
					t.Errorf("%q doesn't say %q", why, want)
				}
			}()
			add()
		}()
	}
}

type tree struct {
	Below []tree `json:"below"`
}

type wrongDefault struct {
	N int `json:"n" default:"x"`
}

type raw struct {
	Data []byte `json:"data"`
}

func TestArgumentsAreDecodedAndTheAnswerIsJSON(t *testing.T) {
	host := toolholdtest.New(t)
	given := map[string]any{"path": "a", "words": []string{"b"}, "lines": map[string]int{"first": 2}, "data": map[string]int{"$attachment": 0}}
	output, err := toolholdtest.Call("find", given, toolhold.Content{Bytes: []byte("four")})
	if err != nil || output.Structured != `{"lines":2,"names":["a","up","0.5","b","four"]}` {
		t.Fatalf("%v, %v", output, err)
	}
	if output.Content[0].Text != output.Structured || len(host.Progress) != 1 {
		t.Fatalf("%v, %v", output, host.Progress)
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for want, given := range map[string]map[string]any{
		"words is missing":                                                {"path": "a"},
		"the tool has no argument pth":                                    {"path": "a", "words": []string{}, "pth": 1},
		"path is number; it has to be string":                             {"path": 1, "words": []string{}},
		"lines.first is string; it has to be int":                         {"path": "a", "words": []string{}, "lines": map[string]string{"first": "x"}},
		"data has to be {\"$attachment\": N}; the call has 0 attachments": {"path": "a", "words": []string{}, "data": map[string]int{"$attachment": 0}},
	} {
		_, err := toolholdtest.Call("find", given)
		if err == nil || err.Error() != want {
			t.Errorf("%v isn't %q", err, want)
		}
	}
}

func TestErrorsBecomeFailures(t *testing.T) {
	host := toolholdtest.New(t)
	for name, want := range map[string]toolhold.Failure{
		"panic": {Code: "panic", Message: "panic: seven is no prime"},
		"file":  {Code: "not-found", Message: "/no/such/file: not found"},
		"link":  {Code: "not-found", Message: "/no/such/file and /no/such/other: not found"},
		"late":  {Category: toolhold.Timeout, Message: "asking: context deadline exceeded"},
		"json":  {Code: "json", Message: "unexpected end of JSON input"},
		"own":   {Category: toolhold.RateLimited, Code: "slow", RetryAfter: time.Second},
		"value": {Code: "error", Message: "json: unsupported type: func()"},
		"plain": {Code: "error", Message: "plain"},
	} {
		_, err := toolholdtest.Call("fail", how{name})
		var failure *toolhold.Failure
		if !errors.As(err, &failure) || !reflect.DeepEqual(*failure, want) {
			t.Errorf("%s: %+v", name, failure)
		}
	}
	if len(host.Logged) != 1 || !strings.Contains(host.Logged[0], "toolhold_test.go:") {
		t.Errorf("%v", host.Logged)
	}
	if _, err := toolholdtest.Call("no", how{}); err == nil || err.Error() != "the plugin has no tool no" {
		t.Error(err)
	}
}

func TestStoreAndSettingsHaveStandIns(t *testing.T) {
	host := toolholdtest.New(t)
	host.Config["colour"] = `"red"`
	var colour string
	if is, err := toolhold.Config("colour", &colour); !is || err != nil || colour != "red" {
		t.Fatal(is, err, colour)
	}
	if is, err := toolhold.Config("size", &colour); is || err != nil {
		t.Fatal(is, err)
	}
	for _, key := range []string{"a/2", "b", "a/1"} {
		if err := store.Put(key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := store.CompareAndSet("b", []byte("x"), []byte("y")); done || err != nil {
		t.Fatal(done, err)
	}
	if done, err := store.CompareAndSet("c", nil, []byte("new")); !done || err != nil {
		t.Fatal(done, err)
	}
	if err := store.Delete("b"); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for entry, err := range store.Items("a/") {
		keys = append(keys, entry.Key, string(entry.Value), fmt.Sprint(err))
	}
	if fmt.Sprint(keys) != "[a/1 a/1 <nil> a/2 a/2 <nil>]" {
		t.Fatal(keys)
	}
	if value, err := store.Get("b"); value != nil || err != nil {
		t.Fatal(value, err)
	}
}

func TestProgramThatFailsSaysSo(t *testing.T) {
	if text, err := process.OutputOf(process.Command{Program: []string{"cat"}, Input: []byte("in")}); text != "in" || err != nil {
		t.Fatal(text, err)
	}
	_, err := process.Output("sh", "-c", "echo no >&2; exit 3")
	var failure *toolhold.Failure
	if !errors.As(err, &failure) || failure.Code != "exit-status" || failure.Message != "it exited with 3\nno" {
		t.Fatalf("%+v", failure)
	}
	if finished, err := process.Run(process.Command{Program: []string{"sleep", "9"}, TimeoutMs: 50}); err != nil || finished.Ending != "timeout" {
		t.Fatal(finished, err)
	}
}

func TestDocumentsAreFoundListedAndDeleted(t *testing.T) {
	toolholdtest.New(t)
	err := index.Put(
		index.Document{Key: "a/1", Text: "A quick fox", Tags: []string{"animal"}, Vector: []int8{1, -128}},
		index.Document{Key: "a/2", Text: "fox, fox and hound"},
		index.Document{Key: "b"},
	)
	if err != nil {
		t.Fatal(err)
	}
	found := func(query index.Query) (keys string) {
		hits, err := index.Search(query)
		if err != nil {
			t.Fatal(err)
		}
		for _, hit := range hits {
			keys += fmt.Sprint(hit.Key, hit.FoundBy, " ")
		}
		return keys
	}
	for expected, query := range map[string]index.Query{
		"a/2[words] a/1[words] ": {Words: "hound FOX"},
		"a/1[words] ":            {Words: "fox", Tags: []string{"animal"}},
		"a/1[vector] ":           {Vector: []int8{127, 0}, Prefix: "a/"},
		"a/1[] ":                 {Limit: 1},
	} {
		if keys := found(query); keys != expected {
			t.Errorf("%v finds %s", query, keys)
		}
	}
	documents, err := index.Get("b", "c")
	if err != nil || documents[0].Key != "b" || documents[1] != nil {
		t.Error(documents, err)
	}
	if err := index.Delete("b", "none"); err != nil {
		t.Error(err)
	}
	for entry, err := range index.Items("") {
		if err != nil || !strings.HasPrefix(entry.Key, "a/") {
			t.Error(entry, err)
		}
	}
	if deleted, err := index.DeletePrefix("a/"); deleted != 2 || err != nil {
		t.Error(deleted, err)
	}
}

func TestTasksAreKeptAndPartsAnswer(t *testing.T) {
	host := toolholdtest.New(t)
	for _, task := range []schedule.Task{
		{Name: "tidy", Kind: "cron", When: "0 4 * * *", Tool: "notes__tidy", Arguments: map[string]int{"days": 30}},
		{Name: "ask", Kind: "every", When: "60", Tool: "notes__ask"},
	} {
		if _, err := schedule.Put(task); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := schedule.Pause("ask", true); !is || err != nil {
		t.Error(is, err)
	}
	tasks, err := schedule.Tasks()
	shown := fmt.Sprintf("%s %v %s", tasks[0].Name, tasks[0].Paused, tasks[1].Arguments)
	if err != nil || shown != `ask true {"days":30}` {
		t.Error(shown, err)
	}
	if is, err := schedule.Remove("none"); is || err != nil {
		t.Error(is, err)
	}

	host.Parts = map[string]func([]byte) ([]byte, error){"upper": func(input []byte) ([]byte, error) {
		if len(input) == 0 {
			return nil, errors.New("it is empty")
		}
		return []byte(strings.ToUpper(string(input))), nil
	}}
	results := parts.Run("upper", [][]byte{[]byte("a"), nil})
	if string(results[0].Answer) != "A" || results[1].Err == nil {
		t.Error(results)
	}
	var failed *toolhold.HostError
	if !errors.As(parts.Run("lower", [][]byte{nil})[0].Err, &failed) || failed.Code != "unavailable" {
		t.Error(failed)
	}
	if _, err := service.Connect("a", process.Command{}); err == nil {
		t.Error("a service has no stand-in")
	}
}
