// Package schedule has calls of the plugin's own tools at a later time. Ask for `schedule` in the
// manifest.
package schedule

import (
	"encoding/json"

	"toolhold/internal/host"
)

// Task is a call of a tool, and when it is made.
type Task = host.Task

// State is a task as it stands.
type State = host.TaskState

// Run is a run of a task.
type Run = host.TaskRun

// Put keeps a task, which replaces the one with the same name.
func Put(task Task) (State, error) {
	arguments := []byte("{}")
	if task.Arguments != nil {
		var err error
		if arguments, err = json.Marshal(task.Arguments); err != nil {
			return State{}, err
		}
	}
	task.Arguments = json.RawMessage(arguments)
	return host.SchedulePut(task, string(arguments))
}

// Remove removes a task and its runs. False: there is none with this name.
func Remove(name string) (bool, error) { return host.ScheduleRemove(name) }

// Pause has a task wait, or resumes it. False: there is none with this name.
func Pause(name string, paused bool) (bool, error) { return host.SchedulePause(name, paused) }

// RunSoon has a task run once as soon as possible. False: there is none with this name.
func RunSoon(name string) (bool, error) { return host.ScheduleRunSoon(name) }

// Tasks returns the plugin's tasks for the principal of the call, sorted by name.
func Tasks() ([]State, error) { return host.ScheduleTasks() }

// Runs returns the last 20 runs of a task, the latest first.
func Runs(name string) ([]Run, error) { return host.ScheduleRuns(name) }
