//go:build !wasip1

// Package toolholdtest has what stands for the host in unit tests.
package toolholdtest

import (
	"encoding/json"
	"testing"

	"toolhold"
	"toolhold/internal/host"
)

// Host is what the plugin sees of the host, and what it did to it.
type Host = host.Standin

// New gives the test a host of its own.
func New(t testing.TB) *Host {
	t.Helper()
	host.Current = &Host{Config: map[string]string{}, Store: map[string][]byte{}}
	return host.Current
}

// Call calls a tool by its name, with arguments that become JSON, as the host does. Its answer is
// an Output whose Structured is JSON in a string, and its error a *toolhold.Failure.
func Call(name string, arguments any, attachments ...toolhold.Content) (toolhold.Output, error) {
	text, err := json.Marshal(arguments)
	if err != nil {
		return toolhold.Output{}, err
	}
	return toolhold.Run(name, string(text), attachments)
}
