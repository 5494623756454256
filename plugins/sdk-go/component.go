//go:build wasip1

package toolhold

import (
	"strings"

	_ "toolhold/internal/exports"
	"toolhold/internal/host"
	"toolhold/internal/memory"
	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_tool_tools"
	"toolhold/internal/wit/toolhold_tool_types"
	"toolhold/internal/wit/export_toolhold_tool_tools"
)

// The most bytes of a message that the host takes.
const maxMessage = 4096

func init() {
	export_toolhold_tool_tools.ListTools = listTools
	export_toolhold_tool_tools.CallTool = callTool
}

func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func option(text string) types.Option[string] {
	if text == "" {
		return types.None[string]()
	}
	return types.Some(clean(text))
}

func listTools() types.Result[[]toolhold_tool_tools.Definition, toolhold_tool_types.Failure] {
	var list []toolhold_tool_tools.Definition
	for _, tool := range tools {
		definition := toolhold_tool_tools.Definition{
			Name:         tool.Name,
			Aliases:      tool.Aliases,
			Title:        option(tool.Title),
			Description:  clean(tool.Description),
			InputSchema:  string(encoded(objectOf(tool.fields))),
			OutputSchema: option(tool.outputSchema),
			AnswersIn:    option(tool.AnswersIn),
		}
		for _, promise := range tool.Promises {
			definition.Promises = append(definition.Promises, string(promise))
		}
		for _, each := range tool.fields {
			if each.subject != "" {
				pointer := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(each.name)
				definition.Subjects = append(definition.Subjects, toolhold_tool_tools.Subject{Pointer: pointer, Kind: each.subject, Access: each.access})
			}
			if len(each.aliases)+len(each.roles) > 0 {
				definition.Arguments = append(definition.Arguments, toolhold_tool_tools.Argument{
					Name:    each.name,
					Aliases: each.aliases,
					Roles:   each.roles,
					Base:    option(each.base),
				})
			}
		}
		list = append(list, definition)
	}
	return types.Ok[[]toolhold_tool_tools.Definition, toolhold_tool_types.Failure](list)
}

func callTool(invocation toolhold_tool_tools.Invocation) types.Result[toolhold_tool_types.Output, toolhold_tool_types.Failure] {
	// All of it lies in memory that the next call of the host uses again.
	tool, arguments, meta := strings.Clone(invocation.Tool), strings.Clone(invocation.Arguments), ""
	if invocation.Meta.Tag() == types.OptionSome {
		meta = strings.Clone(invocation.Meta.Some())
	}
	var attachments []Content
	for _, each := range invocation.Attachments {
		attachments = append(attachments, host.FromWIT(each))
	}
	memory.Unpin()
	output, failure := run(tool, arguments, meta, attachments)
	if failure != nil {
		message := failure.Message[:min(len(failure.Message), maxMessage)]
		retry := types.None[uint64]()
		if failure.RetryAfter > 0 {
			retry = types.Some(uint64(failure.RetryAfter.Milliseconds()))
		}
		return types.Err[toolhold_tool_types.Output](toolhold_tool_types.Failure{
			Category:     categories[failure.Category],
			Code:         option(failure.Code),
			Message:      strings.ToValidUTF8(message, ""),
			Suggestion:   option(failure.Suggestion),
			RetryAfterMs: retry,
			Content:      contents(failure.Content),
		})
	}
	structured, _ := output.Structured.(string)
	return types.Ok[toolhold_tool_types.Output, toolhold_tool_types.Failure](toolhold_tool_types.Output{
		Content:      contents(output.Content),
		Structured:   option(structured),
		AfterEmitted: output.AfterEmitted,
	})
}

var categories = map[Category]uint8{
	PermanentFailure:  toolhold_tool_types.CategoryPermanentFailure,
	InvalidParameters: toolhold_tool_types.CategoryInvalidParameters,
	TypeMismatch:      toolhold_tool_types.CategoryTypeMismatch,
	RateLimited:       toolhold_tool_types.CategoryRateLimited,
	ServerError:       toolhold_tool_types.CategoryServerError,
	NetworkError:      toolhold_tool_types.CategoryNetworkError,
	Timeout:           toolhold_tool_types.CategoryTimeout,
}

func contents(parts []Content) []toolhold_tool_types.Content {
	var list []toolhold_tool_types.Content
	for _, part := range parts {
		list = append(list, host.ToWIT(part))
	}
	return list
}
