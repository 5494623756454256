// Package service has programs that outlive a call, such as language servers. Ask for `service` in the
// manifest, beside `process`. It has no stand-in for unit tests.
package service

import (
	"time"

	"toolhold/internal/host"
	"toolhold/process"
)

// Ended is the state of a program that has ended.
type Ended = host.Ended

// Connection is the only connection to a service.
type Connection struct {
	held *host.Connection
}

// Connect connects to the service with this name, which is started if it doesn't run with this
// command. Of the command, Program, Directory and Environment count.
//
// The service ends with the connection, unless Keep was called: defer Close.
func Connect(name string, command process.Command) (*Connection, error) {
	held, err := host.Connect(name, command)
	if err != nil {
		return nil, err
	}
	return &Connection{held}, nil
}

// Stop ends a service. False: none with this name runs.
func Stop(name string) (bool, error) { return host.StopService(name) }

// IsNew says whether the program was started for this connection, so that it knows nothing yet.
func (c *Connection) IsNew() bool { return c.held.IsNew() }

// Read waits for standard output, for its end or for the timeout, and takes it: at most 1 MiB. A
// negative timeout is the time that the call has.
func (c *Connection) Read(timeout time.Duration) []byte {
	if timeout < 0 {
		return c.held.Read(-1)
	}
	return c.held.Read(timeout.Milliseconds())
}

// Errors takes the standard error so far: at most 1 MiB.
func (c *Connection) Errors() []byte { return c.held.Errors() }

// Write writes to standard input, waits until the program has read it, at most for 4 s, and returns
// how many bytes it read.
func (c *Connection) Write(bytes []byte) int { return int(c.held.Write(bytes)) }

// Ended returns nil while the program runs.
func (c *Connection) Ended() *Ended { return c.held.Ended() }

// Keep keeps the service for the next connection. Call it when no message is half read or half
// written.
func (c *Connection) Keep() { c.held.Keep() }

// Close ends the connection, and the service unless it is kept.
func (c *Connection) Close() { c.held.Drop() }
