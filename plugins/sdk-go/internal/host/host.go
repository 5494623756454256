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
