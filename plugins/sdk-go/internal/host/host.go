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
	// Code is `denied`, `invalid`, `not-found`, `limit`, `busy`, `unavailable` or `failed`.
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

// Document is a text that is searched for words, with what belongs to it.
type Document struct {
	// Key has 1 to 512 bytes.
	Key string
	// Text is what is searched for words, at most 1 MiB.
	Text string
	// Tags are what a query can ask for exactly.
	Tags []string
	// Vector has the same number of elements in each document with a vector.
	Vector []int8
	// Data is kept with it and not searched, at most 64 KiB.
	Data []byte
}

// IndexEntry is what a listing has of a document.
type IndexEntry struct {
	Key  string
	Tags []string
	Data []byte
}

// Query says what to search for. Without words and without a vector, it finds the latest documents.
type Query struct {
	// Words have no syntax. A document needs one of them.
	Words string
	// Tags are what a hit has all of.
	Tags []string
	// Prefix is what the key of a hit begins with.
	Prefix string
	// Vector is near to those of hits.
	Vector []int8
	// Limit is the number of hits; 10 if it is 0.
	Limit int
}

// Hit is a document that was found.
type Hit struct {
	Key string
	// Score is higher for better ones. Only hits of one query can be compared.
	Score float64
	// FoundBy has `words`, `vector` or both.
	FoundBy []string
}

// Task is a call of a tool, and when it is made.
type Task struct {
	Name string
	// Kind is `once` (When is a time of RFC 3339 or a duration such as `PT15M`), `every` (seconds) or
	// `cron`.
	Kind string
	When string
	// Tool is the full name of one of the plugin's own tools.
	Tool string
	// Arguments become JSON. In a state, they are a json.RawMessage.
	Arguments any
	// Prompt is for Toolhold's own agent, if there is no Tool. Third-party plugins can't ask it.
	Prompt string
	// Zone is a name of the time zone database; the machine's if it is empty.
	Zone string
	// Missed says what becomes of times that passed while nothing ran: `once` (also if it is empty),
	// `all` or `skip`.
	Missed string
}

// TaskState is a task as it stands.
type TaskState struct {
	Task
	// Next is when it runs next, in RFC 3339, and empty if it never does.
	Next   string
	Paused bool
	// Last is its last run, if there is one.
	Last *TaskRun
}

// TaskRun is a run of a task. The times are in RFC 3339, and empty if they haven't come.
type TaskRun struct {
	Due, Started, Ended string
	// State is `waiting`, `running`, `done`, `failed`, `denied`, `interrupted` or `skipped`. There may
	// be more later.
	State string
	// Missed counts earlier times that it stands for.
	Missed int
	// Output is what it answered, or why it failed: at most 2,000 bytes.
	Output string
}

// PartResult is what a part makes of an input: an answer, or an error for this input alone.
type PartResult struct {
	Answer []byte
	Err    error
}

// Ended is the state of a program that has ended.
type Ended struct {
	// ExitCode is -1 if the host ended the program.
	ExitCode int
	Ending   string
}
