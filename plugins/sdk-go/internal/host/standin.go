//go:build !wasip1

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Standin stands for the host in unit tests.
type Standin struct {
	// Config has the settings, each as JSON.
	Config map[string]string
	Store  map[string][]byte
	Index  map[string]Document
	Tasks  map[string]TaskState
	// Parts has what each part makes of an input.
	Parts map[string]func(input []byte) ([]byte, error)
	// Secrets has the names of those that are configured.
	Secrets []string
	// Logged has a line for each message: `warn: text`.
	Logged   []string
	Progress []string
	Emitted  []Content
}

// Current is the stand-in of the test that runs.
var (
	Current = &Standin{}
	lock    sync.Mutex
)

func locked() func() {
	lock.Lock()
	return lock.Unlock
}

func ID() string { return "test" }

func RemainingMs() uint64 { return 60_000 }

func Cancelled() bool { return false }

func Progress(fraction float64, message string) {
	defer locked()()
	Current.Progress = append(Current.Progress, fmt.Sprintf("%g: %s", fraction, message))
}

func Emit(part Content) bool {
	defer locked()()
	Current.Emitted = append(Current.Emitted, part)
	return true
}

func Log(level uint8, message string) {
	defer locked()()
	names := []string{"debug", "info", "warn", "error"}
	Current.Logged = append(Current.Logged, names[level]+": "+message)
}

func Config(key string) (string, bool) {
	defer locked()()
	value, is := Current.Config[key]
	return value, is
}

func HasSecret(name string) bool {
	defer locked()()
	return slices.Contains(Current.Secrets, name)
}

func StoreGet(key string) ([]byte, error) {
	defer locked()()
	return bytes.Clone(Current.Store[key]), nil
}

func StoreList(prefix, _ string) (entries []Entry, next string, err error) {
	defer locked()()
	for _, key := range slices.Sorted(maps.Keys(Current.Store)) {
		if strings.HasPrefix(key, prefix) {
			entries = append(entries, Entry{key, bytes.Clone(Current.Store[key])})
		}
	}
	return entries, "", nil
}

func StoreWrite(expected, changes []Entry) (bool, error) {
	defer locked()()
	for _, each := range expected {
		value, is := Current.Store[each.Key]
		if is != (each.Value != nil) || !bytes.Equal(value, each.Value) {
			return false, nil
		}
	}
	if Current.Store == nil {
		Current.Store = map[string][]byte{}
	}
	for _, each := range changes {
		if each.Value == nil {
			delete(Current.Store, each.Key)
		} else {
			Current.Store[each.Key] = bytes.Clone(each.Value)
		}
	}
	return true, nil
}

func Run(command Command) (Finished, error) {
	words := command.Program
	if command.Shell != "" {
		words = []string{"bash", "-c", command.Shell}
	}
	if len(words) == 0 {
		return Finished{}, &Error{"invalid", "there is no program to run"}
	}
	timeout := time.Minute
	if command.TimeoutMs > 0 {
		timeout = time.Duration(command.TimeoutMs) * time.Millisecond
	}
	limited, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	started := exec.CommandContext(limited, words[0], words[1:]...)
	var stdout, stderr bytes.Buffer
	started.Stdin, started.Stdout, started.Stderr = bytes.NewReader(command.Input), &stdout, &stderr
	started.Dir = command.Directory
	started.Env = os.Environ()
	for name, value := range command.Environment {
		started.Env = append(started.Env, name+"="+value)
	}
	failed := started.Run()
	var exited *exec.ExitError
	if failed != nil && !errors.As(failed, &exited) {
		return Finished{}, &Error{"not-found", failed.Error()}
	}
	finished := Finished{started.ProcessState.ExitCode(), "exited", stdout.Bytes(), stderr.Bytes(), false, nil}
	if limited.Err() != nil {
		finished.Ending = "timeout"
	}
	return finished, nil
}

func Find(Scope) ([]FoundEntry, error) { return nil, noSearch }

func Grep(Scope, Pattern) ([]FoundLine, error) { return nil, noSearch }

var noSearch = &Error{"unavailable", "searching has no stand-in in unit tests"}
