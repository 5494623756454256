//go:build wasip1

package host

import (
	"bytes"
	"strings"
	"sync"

	"toolhold/internal/memory"
	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_host_call"
	"toolhold/internal/wit/toolhold_host_config"
	"toolhold/internal/wit/toolhold_host_log"
	"toolhold/internal/wit/toolhold_host_process"
	"toolhold/internal/wit/toolhold_host_secrets"
	"toolhold/internal/wit/toolhold_host_store"
	"toolhold/internal/wit/toolhold_host_types"
	"toolhold/internal/wit/toolhold_tool_types"
)

// What the host hands over lies in memory that the next call of the host uses again.
var lock sync.Mutex

// Asked calls the host, and copies what it hands over.
func Asked[T any](call func() T) T {
	lock.Lock()
	defer lock.Unlock()
	defer memory.Unpin()
	return call()
}

func fromHost(e toolhold_host_types.Error) error {
	return &Error{strings.Clone(e.Code), strings.Clone(e.Message)}
}

// Failed is why a function of the host did nothing, in the host's form.
type Failed = toolhold_host_types.Error

// plain calls a function of the host whose value has nothing to copy.
func plain[T any](call func() types.Result[T, Failed]) (value T, err error) {
	Asked(func() bool {
		result := call()
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
		} else {
			value = result.Ok()
		}
		return true
	})
	return value, err
}

// done calls a function of the host that has no value.
func done(call func() types.Result[types.Unit, Failed]) error {
	_, err := plain(call)
	return err
}

// text copies a text that may be missing. Then it is empty.
func text(value types.Option[string]) string {
	if value.Tag() == types.OptionNone {
		return ""
	}
	return strings.Clone(value.Some())
}

func option[T comparable](value T) types.Option[T] {
	var none T
	if value == none {
		return types.None[T]()
	}
	return types.Some(value)
}

// ToWIT makes the host's form of a part.
func ToWIT(part Content) toolhold_tool_types.Content {
	body := toolhold_tool_types.MakeBodyText(strings.ToValidUTF8(part.Text, "\uFFFD"))
	switch {
	case part.Link != "":
		body = toolhold_tool_types.MakeBodyLink(strings.ToValidUTF8(part.Link, "\uFFFD"))
	case part.Bytes != nil:
		body = toolhold_tool_types.MakeBodyBytes(part.Bytes)
	}
	return toolhold_tool_types.Content{
		Body:      body,
		MediaType: option(strings.ToValidUTF8(part.MediaType, "\uFFFD")),
		Meta:      types.None[string](),
	}
}

// FromWIT copies a part that the host handed over.
func FromWIT(content toolhold_tool_types.Content) Content {
	var part Content
	switch content.Body.Tag() {
	case toolhold_tool_types.BodyText:
		part.Text = strings.Clone(content.Body.Text())
	case toolhold_tool_types.BodyBytes:
		part.Bytes = bytes.Clone(content.Body.Bytes())
	case toolhold_tool_types.BodyLink:
		part.Link = strings.Clone(content.Body.Link())
	}
	if content.MediaType.Tag() == types.OptionSome {
		part.MediaType = strings.Clone(content.MediaType.Some())
	}
	return part
}

func ID() string {
	return Asked(func() string { return strings.Clone(toolhold_host_call.Id()) })
}

func RemainingMs() uint64 { return toolhold_host_call.RemainingMs() }

func Cancelled() bool { return toolhold_host_call.Cancelled() }

func Progress(fraction float64, message string) {
	known := types.None[float64]()
	if fraction >= 0 {
		known = types.Some(fraction)
	}
	toolhold_host_call.Progress(known, strings.ToValidUTF8(message, "\uFFFD"))
}

func Emit(part Content) bool { return toolhold_host_call.Emit(ToWIT(part)) }

func Log(level uint8, message string) {
	toolhold_host_log.Write(level, strings.ToValidUTF8(message, "\uFFFD"))
}

func Config(key string) (string, bool) {
	var is bool
	value := Asked(func() string {
		found := toolhold_host_config.Get(key)
		if is = found.Tag() == types.OptionSome; is {
			return strings.Clone(found.Some())
		}
		return ""
	})
	return value, is
}

func StoreGet(key string) (value []byte, err error) {
	Asked(func() bool {
		result := toolhold_host_store.Get(key)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
		} else if found := result.Ok(); found.Tag() == types.OptionSome {
			// Not nil, if it is empty.
			value = append([]byte{}, found.Some()...)
		}
		return true
	})
	return value, err
}

// StoreList returns a page, and where the next one begins; an empty cursor is that of the first.
func StoreList(prefix, cursor string) (entries []Entry, next string, err error) {
	Asked(func() bool {
		result := toolhold_host_store.List(prefix, option(cursor), 1000)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		page := result.Ok()
		for _, each := range page.Entries {
			entries = append(entries, Entry{strings.Clone(each.Key), bytes.Clone(each.Value)})
		}
		next = text(page.Cursor)
		return true
	})
	return entries, next, err
}

func StoreWrite(expected, changes []Entry) (bool, error) {
	value := func(entry Entry) types.Option[[]byte] {
		if entry.Value == nil {
			return types.None[[]byte]()
		}
		return types.Some(entry.Value)
	}
	var expectations []toolhold_host_store.Expectation
	for _, each := range expected {
		expectations = append(expectations, toolhold_host_store.Expectation{Key: each.Key, Value: value(each)})
	}
	var made []toolhold_host_store.Change
	for _, each := range changes {
		made = append(made, toolhold_host_store.Change{Key: each.Key, Value: value(each)})
	}
	return plain(func() types.Result[bool, Failed] { return toolhold_host_store.Write(expectations, made) })
}

func environment(command Command) (variables []types.Tuple2[string, string]) {
	for name, value := range command.Environment {
		variables = append(variables, types.Tuple2[string, string]{F0: name, F1: value})
	}
	return variables
}

func Run(command Command) (finished Finished, err error) {
	what := toolhold_host_process.MakeCommandProgram(command.Program)
	if command.Shell != "" {
		what = toolhold_host_process.MakeCommandShell(command.Shell)
	}
	options := toolhold_host_process.Options{
		Directory:   option(command.Directory),
		Environment: environment(command),
		TimeoutMs:   option(command.TimeoutMs),
		OutputLimit: types.None[uint32](),
		Meta:        types.None[string](),
	}
	Asked(func() bool {
		result := toolhold_host_process.Run(what, command.Input, options)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
			return false
		}
		done, output := result.Ok().F0, result.Ok().F1
		finished = Finished{
			ExitCode:  -1,
			Ending:    strings.Clone(done.Ending),
			Stdout:    bytes.Clone(output.Stdout),
			Stderr:    bytes.Clone(output.Stderr),
			Truncated: output.StdoutTruncated || output.StderrTruncated,
		}
		if done.ExitCode.Tag() == types.OptionSome {
			finished.ExitCode = int(done.ExitCode.Some())
		}
		for _, notice := range done.Notices {
			finished.Notices = append(finished.Notices, strings.Clone(notice))
		}
		return true
	})
	return finished, err
}

func HasSecret(name string) bool { return toolhold_host_secrets.Exists(name) }
