//go:build wasip1

package host

import (
	"encoding/json"
	"strings"

	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_host_schedule"
)

func SchedulePut(task Task, arguments string) (state TaskState, err error) {
	action := toolhold_host_schedule.MakeActionCall(toolhold_host_schedule.ToolCall{Tool: task.Tool, Arguments: arguments})
	if task.Tool == "" {
		action = toolhold_host_schedule.MakeActionPrompt(strings.ToValidUTF8(task.Prompt, "\uFFFD"))
	}
	if task.Missed == "" {
		task.Missed = "once"
	}
	Asked(func() bool {
		result := toolhold_host_schedule.Put(toolhold_host_schedule.Task{
			Name:   task.Name,
			Kind:   task.Kind,
			When:   task.When,
			Zone:   option(task.Zone),
			Missed: task.Missed,
			Action: action,
			Meta:   types.None[string](),
		})
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
		} else {
			state = stateFromWIT(result.Ok())
		}
		return true
	})
	return state, err
}

func ScheduleRemove(name string) (bool, error) {
	return plain(func() types.Result[bool, Failed] { return toolhold_host_schedule.Remove(name) })
}

func SchedulePause(name string, paused bool) (bool, error) {
	return plain(func() types.Result[bool, Failed] { return toolhold_host_schedule.Pause(name, paused) })
}

func ScheduleRunSoon(name string) (bool, error) {
	return plain(func() types.Result[bool, Failed] { return toolhold_host_schedule.RunSoon(name) })
}

func ScheduleTasks() (states []TaskState, err error) {
	Asked(func() bool {
		result := toolhold_host_schedule.Tasks()
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		for _, each := range result.Ok() {
			states = append(states, stateFromWIT(each))
		}
		return true
	})
	return states, err
}

func ScheduleRuns(name string) (runs []TaskRun, err error) {
	Asked(func() bool {
		result := toolhold_host_schedule.Runs(name)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		for _, each := range result.Ok() {
			runs = append(runs, runFromWIT(each))
		}
		return true
	})
	return runs, err
}

func stateFromWIT(each toolhold_host_schedule.State) TaskState {
	state := TaskState{
		Task: Task{
			Name:   strings.Clone(each.Task.Name),
			Kind:   strings.Clone(each.Task.Kind),
			When:   strings.Clone(each.Task.When),
			Zone:   text(each.Task.Zone),
			Missed: strings.Clone(each.Task.Missed),
		},
		Next:   text(each.Next),
		Paused: each.Paused,
	}
	if action := each.Task.Action; action.Tag() == toolhold_host_schedule.ActionCall {
		state.Tool = strings.Clone(action.Call().Tool)
		state.Arguments = json.RawMessage(strings.Clone(action.Call().Arguments))
	} else {
		state.Prompt = strings.Clone(action.Prompt())
	}
	if each.Last.Tag() == types.OptionSome {
		last := runFromWIT(each.Last.Some())
		state.Last = &last
	}
	return state
}

func runFromWIT(each toolhold_host_schedule.Run) TaskRun {
	return TaskRun{
		Due:     strings.Clone(each.Due),
		Started: text(each.Started),
		Ended:   text(each.Ended),
		State:   strings.Clone(each.State),
		Missed:  int(each.Missed),
		Output:  strings.Clone(each.Output),
	}
}
