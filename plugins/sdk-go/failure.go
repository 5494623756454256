package toolhold

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"toolhold/internal/host"
)

// Category says why a call failed, and so whether the caller may try again.
type Category uint8

const (
	// PermanentFailure would come again in the same way.
	PermanentFailure Category = iota
	// InvalidParameters fit the schema and still aren't valid.
	InvalidParameters
	TypeMismatch
	// The caller may try these again.
	RateLimited
	ServerError
	NetworkError
	Timeout
)

// Failure is an error that says more than a message.
type Failure struct {
	Category Category
	// Code names the case for programs, as `not-found`.
	Code    string
	Message string
	// Suggestion says what to try instead.
	Suggestion string
	RetryAfter time.Duration
	// Content is what there is of an answer in spite of the failure.
	Content []Content
}

func (f *Failure) Error() string { return f.Message }

// HostError says why a function of the host did nothing: the store, programs, searching. Returned by a
// tool, it is a failure with its code.
type HostError = host.Error

// What errors of the system mean, in the words of Toolhold's own tools.
var errnos = []struct {
	errno       syscall.Errno
	code, words string
}{
	{syscall.ENOENT, "not-found", "not found"},
	{syscall.EACCES, "not-permitted", "not permitted"},
	{syscall.EPERM, "not-permitted", "not permitted"},
	{syscall.EEXIST, "exists", "exists already"},
	{syscall.EISDIR, "is-a-directory", "is a directory"},
	{syscall.ENOTDIR, "not-a-directory", "a part of the path is not a directory"},
	{syscall.ENOTEMPTY, "not-empty", "the directory is not empty"},
	{syscall.EROFS, "read-only", "read-only file system"},
	{syscall.ENOSPC, "no-space", "no space left"},
	{syscall.EDQUOT, "no-space", "no space left"},
	{syscall.EFBIG, "too-large", "too large"},
	{syscall.ENAMETOOLONG, "invalid-name", "the file name isn't valid"},
}

// fromError is the failure that an error becomes.
func fromError(err error) *Failure {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure
	}
	var refused *host.Error
	if errors.As(err, &refused) {
		return &Failure{Code: refused.Code, Message: err.Error()}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return &Failure{Category: Timeout, Message: err.Error()}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &Failure{Code: "json", Message: err.Error()}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		for _, each := range errnos {
			if each.errno == errno {
				return &Failure{Code: each.code, Message: named(err) + each.words}
			}
		}
		return &Failure{Code: "io", Message: err.Error()}
	}
	return &Failure{Code: "error", Message: err.Error()}
}

// named is what an error is about, before what was wrong with it.
func named(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Path + ": "
	case errors.As(err, &link):
		return link.Old + " and " + link.New + ": "
	}
	return ""
}
