package tests

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolhold"
	"toolhold/toolholdhttp"
	"toolhold/toolholdtest"
	"toolhold/secrets"
)

func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/often":
			w.Header().Set("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/none":
			w.WriteHeader(http.StatusNotFound)
		case "/slow":
			time.Sleep(200 * time.Millisecond)
		default:
			w.Write([]byte("0123456789"))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestRequestsAreMadeAndStatusesAreFailures(t *testing.T) {
	url := serve(t)
	for path, expected := range map[string]toolhold.Failure{
		"/down":  {Category: toolhold.ServerError, Code: "http-503", Message: url + "/down answered 503", RetryAfter: 7 * time.Second},
		"/often": {Category: toolhold.RateLimited, Code: "http-429", Message: url + "/often answered 429"},
		"/none":  {Code: "http-404", Message: url + "/none answered 404"},
	} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = toolholdhttp.Read(answer, 10)
		var failure *toolhold.Failure
		if !errors.As(err, &failure) || failure.Category != expected.Category || failure.Code != expected.Code ||
			failure.Message != expected.Message || failure.RetryAfter != expected.RetryAfter {
			t.Fatalf("%+v", err)
		}
	}
}

func TestBodyIsBounded(t *testing.T) {
	url := serve(t)
	for most, expected := range map[int]string{10: "", 9: "the answer is longer than 9 bytes"} {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := toolholdhttp.Read(answer, most)
		if (err == nil) != (expected == "") || err == nil && string(body) != "0123456789" || err != nil && err.Error() != expected {
			t.Fatalf("%q, %v", body, err)
		}
	}
}

func TestRequestsThatCantBeSentAreFailures(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for url, expected := range map[string]string{
		"file:///etc/passwd": "invalid-url",
		server.URL:           "unreachable",
	} {
		_, err := http.Get(url)
		var failure *toolhold.Failure
		if !errors.As(err, &failure) || failure.Code != expected {
			t.Fatalf("%s: %v", url, err)
		}
	}
	request, _ := http.NewRequest("GET", server.URL, nil)
	request.Host = "example.org"
	if _, err := http.DefaultClient.Do(request); err == nil || !strings.Contains(err.Error(), "can't name the host example.org") {
		t.Fatal(err)
	}
	client := http.Client{Timeout: 20 * time.Millisecond}
	if _, err := client.Get(serve(t) + "/slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestSecretsAreThoseOfTheStandin(t *testing.T) {
	toolholdtest.New(t).Secrets = []string{"key"}
	if !secrets.Exists("key") || secrets.Exists("other") {
		t.Fatal("other secrets are there")
	}
}
