// Package export_toolhold_tool_tools is what the generated exports call.
package export_toolhold_tool_tools

import (
	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_tool_tools"
	"toolhold/internal/wit/toolhold_tool_types"
)

// ListTools and CallTool are set by the SDK before the host calls anything.
var (
	ListTools func() types.Result[[]toolhold_tool_tools.Definition, toolhold_tool_types.Failure]
	CallTool  func(toolhold_tool_tools.Invocation) types.Result[toolhold_tool_types.Output, toolhold_tool_types.Failure]
)
