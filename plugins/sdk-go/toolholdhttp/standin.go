//go:build !wasip1

package toolholdhttp

import (
	"net/http"

	"toolhold"
)

// Without a proxy of the environment.
var native = &http.Transport{}

func send(request *http.Request) (*http.Response, error) {
	answer, err := native.RoundTrip(request)
	if err != nil && request.Context().Err() == nil {
		err = &toolhold.Failure{
			Category: toolhold.NetworkError,
			Code:     "unreachable",
			Message:  "the request failed: " + err.Error(),
		}
	}
	return answer, err
}
