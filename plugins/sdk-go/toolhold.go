// Package toolhold is the SDK of plugins in Go: tools, their arguments, answers and failures.
//
// A tool is a function. Its first parameter is the call, its second one a struct with the
// arguments, whose tags are their schema:
//
//	type Arguments struct {
//		Path string `json:"path" doc:"The text file." toolhold:"reads-path"`
//	}
//
//	func init() {
//		toolhold.Add(toolhold.Tool{Name: "size", Description: "Says how long a file is."}, size)
//	}
package toolhold

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"toolhold/internal/host"
)

// Promise is something that a tool promises about its calls. The host enforces ReadOnly.
type Promise string

const (
	ReadOnly    Promise = "read-only"
	Additive    Promise = "additive"
	Idempotent  Promise = "idempotent"
	ClosedWorld Promise = "closed-world"
	Cacheable   Promise = "cacheable"
)

// Tool says what models read of a tool, and what it promises.
type Tool struct {
	Name  string
	Title string
	// Description says what the tool does, what it returns and how it fails.
	Description string
	Aliases     []string
	Promises    []Promise
	// AnswersIn is `text` or `structured`: what a model reads of an answer that has both.
	AnswersIn string
}

// Content is a part of an answer: a text, or bytes if they aren't nil, or a link if it isn't empty.
type Content = host.Content

// Output is an answer that is more than one value.
type Output struct {
	Content []Content
	// Structured is a value for programs, which becomes JSON.
	Structured any
	// AfterEmitted says that what was emitted comes first in the answer.
	AfterEmitted bool
}

// Attachment is an argument that travels beside the JSON, large or binary.
type Attachment struct {
	Content
}

// Call is the call that runs.
type Call struct {
	meta string
}

// ID is the same as in the operator's audit.
func (*Call) ID() string { return host.ID() }

// Remaining is how long the call may still take.
func (*Call) Remaining() time.Duration { return time.Duration(host.RemainingMs()) * time.Millisecond }

// Cancelled says whether the caller doesn't wait any more.
func (*Call) Cancelled() bool { return host.Cancelled() }

// Progress tells who waits. The fraction is from 0 to 1, or negative if it isn't known.
func (*Call) Progress(fraction float64, format string, values ...any) {
	host.Progress(fraction, fmt.Sprintf(format, values...))
}

// Emit shows a part of the answer at once. If it returns false, the limit is reached: stop.
func (*Call) Emit(text string) bool { return host.Emit(Content{Text: text}) }

// Meta is what the caller sent beside the arguments, a JSON object, or empty.
func (c *Call) Meta() string { return c.meta }

// Debug, Info, Warn and Error write into the operator's log.
func Debug(format string, values ...any) { host.Log(0, fmt.Sprintf(format, values...)) }

func Info(format string, values ...any) { host.Log(1, fmt.Sprintf(format, values...)) }

func Warn(format string, values ...any) { host.Log(2, fmt.Sprintf(format, values...)) }

func Error(format string, values ...any) { host.Log(3, fmt.Sprintf(format, values...)) }

// Config reads a key of `[plugins.NAME.config]` into a variable. It returns false if it isn't set.
func Config(key string, into any) (bool, error) {
	value, is := host.Config(key)
	if !is {
		return false, nil
	}
	return true, json.Unmarshal([]byte(value), into)
}

// added is a tool with its function.
type added struct {
	Tool
	fields       []field
	arguments    reflect.Type
	outputSchema string
	run          func(call *Call, arguments reflect.Value) (any, error)
}

var tools []*added

// Add makes a function a tool. What has no schema panics, so the plugin isn't loaded.
//
// A string is answered as a text, bytes as bytes, an Output as it says, and anything else as JSON;
// a struct has an output schema. An error is a failure, and so is a panic.
func Add[A, R any](tool Tool, run func(call *Call, arguments A) (R, error)) {
	if tool.Name == "" || tool.Description == "" {
		panic(fmt.Sprintf("tool %q: a name and a description are needed", tool.Name))
	}
	for _, each := range tools {
		if each.Name == tool.Name {
			panic(fmt.Sprintf("there are two tools %q", tool.Name))
		}
	}
	made := &added{Tool: tool, arguments: reflect.TypeFor[A]()}
	made.fields = fieldsOf(reflect.TypeFor[A](), tool.Name, nil)
	if answer := reflect.TypeFor[R](); answer.Kind() == reflect.Struct && answer != reflect.TypeFor[Output]() {
		made.outputSchema = string(encoded(schemaOf(answer, tool.Name+" answers", nil)))
	}
	made.run = func(call *Call, arguments reflect.Value) (any, error) {
		return run(call, arguments.Interface().(A))
	}
	tools = append(tools, made)
}

// The bytes of a stack that the log gets. The host keeps 4 KiB of a message.
const maxStack = 3500

// run calls a tool. What it returns is an Output whose Structured is JSON, or a *Failure.
func run(name, arguments, meta string, attachments []Content) (output Output, failure *Failure) {
	defer func() {
		if why := recover(); why != nil {
			stack := debug.Stack()
			Error("panic: %v\n%s", why, stack[:min(len(stack), maxStack)])
			output, failure = Output{}, &Failure{Code: "panic", Message: fmt.Sprintf("panic: %v", why)}
		}
	}()
	for _, tool := range tools {
		if tool.Name != name {
			continue
		}
		decoded := reflect.New(tool.arguments).Elem()
		if wrong := decode(tool.fields, decoded, arguments, attachments); wrong != nil {
			return Output{}, wrong
		}
		answer, err := tool.run(&Call{meta}, decoded)
		if err != nil {
			return Output{}, fromError(err)
		}
		output, err = toOutput(answer)
		if err != nil {
			return Output{}, fromError(err)
		}
		return output, nil
	}
	return Output{}, &Failure{Category: InvalidParameters, Message: "the plugin has no tool " + name}
}

func toOutput(answer any) (Output, error) {
	var output Output
	switch answer := answer.(type) {
	case string:
		return Output{Content: []Content{{Text: answer}}}, nil
	case []byte:
		return Output{Content: []Content{{Bytes: append([]byte{}, answer...)}}}, nil
	case Output:
		output = answer
	case *Output:
		output = *answer
	default:
		output.Structured = answer
	}
	if output.Structured != nil {
		text, err := json.Marshal(output.Structured)
		if err != nil {
			return Output{}, err
		}
		output.Structured = string(text)
		if len(output.Content) == 0 {
			// The same for who reads texts only.
			output.Content = []Content{{Text: string(text), MediaType: "application/json"}}
		}
	}
	return output, nil
}

// Run calls a tool as the host does, for unit tests: see the package toolholdtest.
func Run(name, arguments string, attachments []Content) (Output, error) {
	output, failure := run(name, arguments, "", attachments)
	if failure != nil {
		return Output{}, failure
	}
	return output, nil
}

// InputSchema is the JSON Schema of a tool's arguments, for unit tests. It is empty if there is no
// such tool.
func InputSchema(name string) string {
	for _, tool := range tools {
		if tool.Name == name {
			return string(encoded(objectOf(tool.fields)))
		}
	}
	return ""
}
