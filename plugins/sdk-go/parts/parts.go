// Package parts computes in components that the plugin brings along. Ask for `parts` in the manifest,
// and name them there.
package parts

import "toolhold/internal/host"

// Result is what a part makes of an input: an answer, or an error for this input alone.
type Result = host.PartResult

// Run runs a part on each of the inputs, at most 4,096, several at a time. The results have their
// order.
func Run(part string, inputs [][]byte) []Result { return host.RunPart(part, inputs) }
