// The tools that try what outlives a call.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolhold"
	"toolhold/index"
	"toolhold/parts"
	"toolhold/process"
	"toolhold/schedule"
	"toolhold/service"
)

func codeOf(err error) string {
	var refused *toolhold.HostError
	if errors.As(err, &refused) {
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

func keysOf(query index.Query) (keys []string) {
	for _, hit := range must(index.Search(query)) {
		keys = append(keys, hit.Key)
	}
	return keys
}

func tryIndex(_ *toolhold.Call, _ struct{}) (map[string]any, error) {
	var data []byte
	for each := range 256 {
		data = append(data, byte(each))
	}
	must(0, index.Put(
		index.Document{Key: "a/1", Text: "A quick fox", Tags: []string{"animal"}, Vector: []int8{1, -128}, Data: data},
		index.Document{Key: "a/2", Text: "föx, fox and hound"},
		index.Document{Key: "b"},
	))
	documents := must(index.Get("a/1", "none"))
	near := must(index.Search(index.Query{Vector: []int8{127, 0}, Prefix: "a/", Limit: 1}))
	var long, many []index.Document
	for number := range 40 {
		long = append(long, index.Document{Key: fmt.Sprint("c/", number), Data: make([]byte, 60_000)})
	}
	for number := range 1000 {
		many = append(many, index.Document{Key: fmt.Sprintf("many/%04d", number)})
	}
	found := map[string]any{
		"words":        keysOf(index.Query{Words: "hound FOX"}),
		"tagged":       keysOf(index.Query{Words: "fox", Tags: []string{"animal"}, Limit: 1}),
		"near":         []any{[]any{near[0].Key, near[0].FoundBy}},
		"whole":        []any{documents[0].Text, documents[0].Tags, documents[0].Vector, bytes.Equal(documents[0].Data, data), documents[1]},
		"no_key":       codeOf(index.Put(index.Document{})),
		"quota":        codeOf(index.Put(long...)),
	}
	must(0, index.Put(many...))
	must(0, index.Put(index.Document{Key: "many/1000"}))
	listed := 0
	for entry, err := range index.Items("many/") {
		must(entry, err)
		listed++
	}
	found["listed"], found["deleted"] = listed, must(index.DeletePrefix("many/"))
	must(0, index.Delete("b", "none"))
	var left []any
	for entry, err := range index.Items("") {
		left = append(left, []any{must(entry, err).Key, len(entry.Data)})
	}
	found["left"] = left
	return found, nil
}

func trySchedule(_ *toolhold.Call, arguments struct {
	Own string `json:"own" doc:"The full name of a tool of this plugin."`
}) (map[string]any, error) {
	refused := func(task schedule.Task) string {
		_, err := schedule.Put(task)
		return codeOf(err)
	}
	call := map[string]string{"key": "colour"}
	state := must(schedule.Put(schedule.Task{Name: "tidy", Kind: "cron", When: "0 4 * * *", Tool: arguments.Own, Arguments: call}))
	again := must(schedule.Put(schedule.Task{
		Name: "again", Kind: "every", When: "3600", Tool: arguments.Own, Arguments: call, Zone: "Europe/Berlin", Missed: "skip",
	}))
	found := map[string]any{
		"next":    state.Next[13:14] + again.Next[10:11],
		"other":   refused(schedule.Task{Name: "other", Kind: "once", When: "PT1H", Tool: "read", Arguments: map[string]string{"path": "x"}}),
		"prompt":  refused(schedule.Task{Name: "other", Kind: "once", When: "PT1H", Prompt: "do something"}),
		"invalid": refused(schedule.Task{Name: "other", Kind: "cron", When: "never", Tool: arguments.Own, Arguments: call}),
		"quota":   refused(schedule.Task{Name: "third", Kind: "every", When: "60", Tool: arguments.Own, Arguments: call}),
		"paused":  []bool{must(schedule.Pause("again", true)), must(schedule.Pause("none", true))},
	}
	var tasks []any
	for _, each := range must(schedule.Tasks()) {
		var zone any
		if each.Zone != "" {
			zone = each.Zone
		}
		tasks = append(tasks, []any{each.Name, each.Kind, each.When, zone, each.Missed, each.Paused})
		found["arguments"] = each.Arguments.(json.RawMessage)
	}
	found["tasks"] = tasks
	found["removed"] = []bool{must(schedule.Remove("again")), must(schedule.Remove("again"))}
	found["soon"] = []bool{must(schedule.RunSoon("tidy")), must(schedule.RunSoon("none"))}
	runs := []string{}
	for _, run := range must(schedule.Runs("tidy")) {
		runs = append(runs, run.State)
	}
	found["runs"] = runs
	return found, nil
}

func tryParts(_ *toolhold.Call, _ struct{}) ([]string, error) {
	results := parts.Run("attack", [][]byte{[]byte("echo a"), []byte("fail x"), nil, []byte("echo b")})
	var found []string
	for _, each := range append(results, parts.Run("none", [][]byte{nil})...) {
		if each.Err != nil {
			found = append(found, codeOf(each.Err))
		} else {
			found = append(found, string(each.Answer))
		}
	}
	return found, nil
}

func tryService(_ *toolhold.Call, _ struct{}) (map[string]any, error) {
	const patience = 20 * time.Second
	connect := func(program string) *service.Connection {
		return must(service.Connect("words", process.Command{Program: []string{program}}))
	}
	var said []any
	for _, word := range []string{"one\n", "two\n"} {
		words := connect("cat")
		said = append(said, []any{words.IsNew(), words.Write([]byte(word)), string(words.Read(patience)), words.Ended() == nil})
		words.Keep()
		words.Close()
	}
	found := map[string]any{"said": said}
	_, full := service.Connect("more", process.Command{Program: []string{"cat"}})
	found["full"] = codeOf(full)
	found["stopped"] = []bool{must(service.Stop("words")), must(service.Stop("words"))}
	dropped := connect("cat")
	isNew := dropped.IsNew()
	dropped.Close()
	found["dropped"] = []bool{isNew, must(service.Stop("words"))}
	failed := connect("false")
	read, ended := failed.Read(patience), failed.Ended()
	found["ended"] = []any{len(read), len(failed.Errors()), ended.ExitCode, ended.Ending}
	failed.Close()
	_, denied := service.Connect("words", process.Command{Program: []string{"bash"}})
	found["denied"] = codeOf(denied)
	return found, nil
}

func init() {
	toolhold.Add(toolhold.Tool{Name: "try_index", Description: "Tries the index."}, tryIndex)
	toolhold.Add(toolhold.Tool{Name: "try_schedule", Description: "Tries tasks."}, trySchedule)
	toolhold.Add(toolhold.Tool{Name: "try_parts", Description: "Tries a part."}, tryParts)
	toolhold.Add(toolhold.Tool{Name: "try_service", Description: "Tries a service."}, tryService)
}
