// A plugin with one tool.
package main

import (
	"os"
	"strings"
	"unicode/utf8"

	"toolhold"
)

type Arguments struct {
	Path string `json:"path" doc:"The text file." toolhold:"reads-path"`
}

type Counts struct {
	Lines int `json:"lines"`
	Words int `json:"words"`
	Bytes int `json:"bytes"`
}

func wordCount(call *toolhold.Call, arguments Arguments) (Counts, error) {
	data, err := os.ReadFile(arguments.Path)
	if err != nil {
		return Counts{}, err
	}
	if !utf8.Valid(data) {
		return Counts{}, &toolhold.Failure{Code: "invalid-data", Message: arguments.Path + ": not UTF-8"}
	}
	text := string(data)
	lines := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		lines++
	}
	return Counts{Lines: lines, Words: len(strings.Fields(text)), Bytes: len(data)}, nil
}

func init() {
	toolhold.Add(toolhold.Tool{
		Name:        "word_count",
		Description: "Counts the lines, words and bytes of a text file. Fails if the file is missing or is not UTF-8.",
		Promises:    []toolhold.Promise{toolhold.ReadOnly, toolhold.ClosedWorld},
	}, wordCount)
}

// The host calls tools, and not this.
func main() {}
