//go:build !wasip1

package berthhttp

import (
	"net/http"

	"berth"
)

// Without a proxy of the environment.
var native = &http.Transport{}

func send(request *http.Request) (*http.Response, error) {
	answer, err := native.RoundTrip(request)
	if err != nil && request.Context().Err() == nil {
		err = &berth.Failure{
			Category: berth.NetworkError,
			Code:     "unreachable",
			Message:  "the request failed: " + err.Error(),
		}
	}
	return answer, err
}
