// Package toolholdhttp makes requests to hosts that the operator granted. Ask for `http` in the
// manifest.
//
// A program that imports it may use net/http as ever: http.Get, an http.Client, and libraries that
// take one. Its http.DefaultTransport is the Transport of this package, since a plugin has no
// sockets. Connections, TLS, proxies and the headers that belong to them are the host's, and so are
// the limits of requests and answers. Tokens never reach a plugin: the operator configures them, and
// the host adds them.
//
// In unit tests, requests are made, so net/http/httptest can answer them.
package toolholdhttp

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"toolhold"
)

// Transport sends requests through the host. While one waits, other goroutines run. A request that
// failed is a *toolhold.Failure in the category by which callers try again.
type Transport struct{}

func init() { http.DefaultTransport = Transport{} }

// RoundTrip sends one request and returns its answer, without following redirects.
func (Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer request.Body.Close()
	}
	address := request.URL
	if address == nil || address.Host == "" || (address.Scheme != "http" && address.Scheme != "https") {
		return nil, &toolhold.Failure{
			Code:    "invalid-url",
			Message: fmt.Sprintf("%v isn't an address: it has to begin with https:// or http://", address),
		}
	}
	if request.Host != "" && request.Host != address.Host {
		return nil, &toolhold.Failure{
			Code:    "invalid-host",
			Message: fmt.Sprintf("a request to %s can't name the host %s", address.Host, request.Host),
		}
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return send(request)
}

// Check returns nil if the status is 200 to 299, and otherwise a *toolhold.Failure in the category by
// which callers try again.
func Check(answer *http.Response) error {
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return nil
	}
	failure := &toolhold.Failure{
		Code:    "http-" + strconv.Itoa(answer.StatusCode),
		Message: "the server answered " + strconv.Itoa(answer.StatusCode),
	}
	if answer.Request != nil && answer.Request.URL != nil {
		failure.Message = answer.Request.URL.Redacted() + " answered " + strconv.Itoa(answer.StatusCode)
	}
	switch {
	case answer.StatusCode == http.StatusTooManyRequests:
		failure.Category = toolhold.RateLimited
	case answer.StatusCode >= 500:
		failure.Category = toolhold.ServerError
	}
	if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31); err == nil {
		failure.RetryAfter = time.Duration(seconds) * time.Second
	}
	return failure
}

// Read checks the status of an answer, and returns its body, at most a number of bytes. A longer one
// is a failure. The body is closed.
func Read(answer *http.Response, most int) ([]byte, error) {
	defer answer.Body.Close()
	if err := Check(answer); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(body) > most {
		return nil, &toolhold.Failure{
			Code:    "too-large",
			Message: fmt.Sprintf("the answer is longer than %d bytes", most),
		}
	}
	return body, nil
}
