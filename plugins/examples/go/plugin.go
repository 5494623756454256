// A plugin with one tool.
package main

import (
	"os"
	"strings"
	"unicode/utf8"

	"berth"
)

type Arguments struct {
	Path string `json:"path" doc:"The text file." berth:"reads-path"`
}

type Counts struct {
	Lines int `json:"lines"`
	Words int `json:"words"`
	Bytes int `json:"bytes"`
}

func wordCount(call *berth.Call, arguments Arguments) (Counts, error) {
	data, err := os.ReadFile(arguments.Path)
	if err != nil {
		return Counts{}, err
	}
	if !utf8.Valid(data) {
		return Counts{}, &berth.Failure{Code: "invalid-data", Message: arguments.Path + ": not UTF-8"}
	}
	text := string(data)
	lines := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		lines++
	}
	return Counts{Lines: lines, Words: len(strings.Fields(text)), Bytes: len(data)}, nil
}

func init() {
	berth.Add(berth.Tool{
		Name:        "word_count",
		Description: "Counts the lines, words and bytes of a text file. Fails if the file is missing or is not UTF-8.",
		Promises:    []berth.Promise{berth.ReadOnly, berth.ClosedWorld},
	}, wordCount)
}

// The host calls tools, and not this.
func main() {}
