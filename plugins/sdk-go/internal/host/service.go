//go:build wasip1

package host

import (
	"bytes"
	"strings"

	"toolhold/internal/types"
	"toolhold/internal/wit/toolhold_host_parts"
	"toolhold/internal/wit/toolhold_host_process"
	"toolhold/internal/wit/toolhold_host_service"
)

func RunPart(part string, inputs [][]byte) (results []PartResult) {
	Asked(func() bool {
		for _, each := range toolhold_host_parts.Run(part, inputs) {
			if each.Tag() == types.ResultErr {
				results = append(results, PartResult{Err: fromHost(each.Err())})
			} else {
				// Not nil, if it is empty.
				results = append(results, PartResult{Answer: append([]byte{}, each.Ok()...)})
			}
		}
		return true
	})
	return results
}

// Connection is the only connection to a service.
type Connection struct {
	held *toolhold_host_service.Connection
}

func Connect(name string, command Command) (connection *Connection, err error) {
	options := toolhold_host_process.Options{
		Directory:   option(command.Directory),
		Environment: environment(command),
		TimeoutMs:   types.None[uint64](),
		OutputLimit: types.None[uint32](),
		Meta:        types.None[string](),
	}
	Asked(func() bool {
		result := toolhold_host_service.Connect(name, command.Program, options)
		if result.Tag() == types.ResultErr {
			err = fromHost(result.Err())
		} else {
			connection = &Connection{result.Ok()}
		}
		return true
	})
	return connection, err
}

func StopService(name string) (bool, error) {
	return plain(func() types.Result[bool, Failed] { return toolhold_host_service.Stop(name) })
}

func (c *Connection) IsNew() bool { return c.held.IsNew() }

// Read waits as long as the call has if the number is negative.
func (c *Connection) Read(timeoutMs int64) []byte {
	timeout := types.None[uint64]()
	if timeoutMs >= 0 {
		timeout = types.Some(uint64(timeoutMs))
	}
	return Asked(func() []byte { return bytes.Clone(c.held.Read(timeout)) })
}

func (c *Connection) Errors() []byte {
	return Asked(func() []byte { return bytes.Clone(c.held.Errors()) })
}

func (c *Connection) Write(bytes []byte) uint64 { return c.held.Write(bytes) }

func (c *Connection) Ended() *Ended {
	return Asked(func() *Ended {
		found := c.held.Ended()
		if found.Tag() == types.OptionNone {
			return nil
		}
		ended := &Ended{-1, strings.Clone(found.Some().Ending)}
		if code := found.Some().ExitCode; code.Tag() == types.OptionSome {
			ended.ExitCode = int(code.Some())
		}
		return ended
	})
}

func (c *Connection) Keep() { c.held.Keep() }

func (c *Connection) Drop() { c.held.Drop() }
