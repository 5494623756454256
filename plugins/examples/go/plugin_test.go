package main

import (
	"os"
	"path/filepath"
	"testing"

	"toolhold/toolholdtest"
)

func TestWordsAndLinesAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte("one two\nthree\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	counts, err := wordCount(nil, Arguments{Path: path})
	if err != nil || counts != (Counts{Lines: 2, Words: 3, Bytes: 14}) {
		t.Fatalf("%+v, %v", counts, err)
	}
}

func TestMissingFileIsReported(t *testing.T) {
	_, err := toolholdtest.Call("word_count", Arguments{Path: "/no/such/file"})
	if err == nil || err.Error() != "/no/such/file: not found" {
		t.Fatal(err)
	}
}
