// Package export_berth_tool_tools is what the generated exports call.
package export_berth_tool_tools

import (
	"berth/internal/types"
	"berth/internal/wit/berth_tool_tools"
	"berth/internal/wit/berth_tool_types"
)

// ListTools and CallTool are set by the SDK before the host calls anything.
var (
	ListTools func() types.Result[[]berth_tool_tools.Definition, berth_tool_types.Failure]
	CallTool  func(berth_tool_tools.Invocation) types.Result[berth_tool_types.Output, berth_tool_types.Failure]
)
