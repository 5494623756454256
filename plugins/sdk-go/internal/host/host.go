// Package host has the functions of the host, or in unit tests what stands for them.
package host

// Content is a part of an answer: a text, or bytes if they aren't nil, or a link if it isn't empty.
type Content struct {
	Text  string
	Bytes []byte
	// Link is a URI that the caller may read through the host.
	Link string
	// MediaType is `text/plain` or `application/octet-stream` if it is empty.
	MediaType string
}

// Error says why a function of the host did nothing.
type Error struct {
	// Code is `denied`, `invalid`, `not-found`, `limit`, `unavailable` or `failed`.
	Code    string
	Message string
}

func (e *Error) Error() string { return e.Message }

// Entry is a key of the store with its bytes. In a change, nil deletes the key; in an expectation,
// nil says that it is missing.
type Entry struct {
	Key   string
	Value []byte
}

// Command is what to run, and how.
type Command struct {
	Program     []string
	Shell       string
	Input       []byte
	Directory   string
	Environment map[string]string
	TimeoutMs   uint64
}

// Finished is what a command came to.
type Finished struct {
	// ExitCode is -1 if the host ended the program.
	ExitCode       int
	Ending         string
	Stdout, Stderr []byte
	// Truncated says whether more was written than was kept.
	Truncated bool
	Notices   []string
}

// Scope says which files are searched.
type Scope struct {
	// Root is a file or a folder, absolute.
	Root string
	// Globs are as in a .gitignore. Without any, all files are searched.
	Globs []string
	// All says that ignored and hidden files are searched too.
	All bool
	// FilesOnly leaves out folders and links.
	FilesOnly bool
}

// Pattern is a regular expression of Rust's crate `regex`.
type Pattern struct {
	Regex         string
	IgnoreCase    bool
	Multiline     bool
	Before, After int
}

// FoundEntry is a file or a folder.
type FoundEntry struct {
	Path string
	// Kind is `file`, `directory`, `symlink` or `other`.
	Kind       string
	Size       uint64
	ModifiedMs uint64
}

// FoundLine is a line of a file. The first one has the number 1.
type FoundLine struct {
	Path    string
	Number  uint64
	Text    string
	IsMatch bool
}
