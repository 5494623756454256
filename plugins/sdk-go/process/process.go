// Package process runs programs of the machine, in a sandbox. Ask for `process` in the manifest.
package process

import (
	"fmt"
	"strings"

	"toolhold"
	"toolhold/internal/host"
)

// Command is a program with its arguments, or a line for a shell, which has to be a subject of the
// call.
type Command = host.Command

// Finished is what a command came to.
type Finished = host.Finished

// Run runs a command to its end. That it exits with another code than 0 is no error.
func Run(command Command) (Finished, error) { return host.Run(command) }

// Output runs a program and returns its standard output. If it exits with another code than 0, it
// is a failure with the code `exit-status`.
func Output(program ...string) (string, error) {
	return OutputOf(Command{Program: program})
}

// OutputOf is Output for a command with more than arguments.
func OutputOf(command Command) (string, error) {
	finished, err := host.Run(command)
	if err != nil {
		return "", err
	}
	if finished.ExitCode != 0 || finished.Ending != "exited" {
		why := fmt.Sprintf("it exited with %d", finished.ExitCode)
		if finished.Ending != "exited" {
			why = "it was ended: " + finished.Ending
		}
		said := strings.TrimSpace(string(finished.Stderr))
		return "", &toolhold.Failure{Code: "exit-status", Message: strings.TrimSpace(why + "\n" + said)}
	}
	return string(finished.Stdout), nil
}
