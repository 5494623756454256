package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"toolhold"
	"toolhold/toolholdhttp"
)

type Ask struct {
	URL  string `json:"url"`
	Body string `json:"body,omitempty"`
}

// ask answers with what a server said.
func ask(_ *toolhold.Call, arguments Ask) (string, error) {
	answer, err := http.Post(arguments.URL, "text/plain", strings.NewReader(arguments.Body))
	if err != nil {
		return "", err
	}
	body, err := toolholdhttp.Read(answer, 1<<20)
	return string(body), err
}

func try(url string) *http.Response { return must(http.Get(url)) }

// failed is the code of a request that has to fail.
func failed(method, url string, change func(*http.Request)) string {
	request := must(http.NewRequest(method, url, nil))
	change(request)
	_, err := http.DefaultClient.Do(request)
	return codeOf(err)
}

func tryHTTP(_ *toolhold.Call, arguments Ask) (map[string]any, error) {
	server := arguments.URL
	found := map[string]any{}
	same := func(*http.Request) {}
	found["no_url"] = failed("GET", "file:///etc/passwd", same)
	found["other_host"] = failed("GET", server, func(request *http.Request) { request.Host = "example.org" })
	found["bad_header"] = failed("GET", server, func(request *http.Request) { request.Header.Set("X-Bad", "a\nb") })
	found["bad_method"] = failed("GET", server, func(request *http.Request) { request.Method = "G T" })
	found["refused_connection"] = failed("GET", "http://127.0.0.1:1/", same)

	// Through a redirect, with headers of the connection, which are the host's.
	request := must(http.NewRequest("PUT", server+"/moved", strings.NewReader("föö")))
	request.Header = http.Header{"Connection": {"close"}, "Transfer-Encoding": {"chunked"}, "X-Two": {"a", "b"}}
	answer := must(http.DefaultClient.Do(request))
	found["sent"] = string(must(toolholdhttp.Read(answer, 1000)))
	found["place"] = strings.TrimPrefix(answer.Request.URL.String(), server)

	// A stream from another goroutine, longer than every buffer.
	reader, writer := io.Pipe()
	go func() {
		for range 300 {
			writer.Write(bytes.Repeat([]byte("0123456789"), 1000))
		}
		writer.Close()
	}()
	answer = must(http.Post(server+"/length", "text/plain", reader))
	found["length"] = string(must(toolholdhttp.Read(answer, 1000)))
	_, err := http.Post(server+"/length", "text/plain", io.MultiReader(strings.NewReader("some"), broken{}))
	found["own_error"] = errors.Is(err, errBroken)

	whole := must(io.ReadAll(try(server + "/long").Body))
	found["whole"] = bytes.Equal(whole, bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	_, err = toolholdhttp.Read(try(server+"/long"), 1000)
	found["too_long"] = codeOf(err)
	_, err = io.ReadAll(try(server + "/broken").Body)
	found["broken"] = codeOf(err)

	// The server answers when all of them wait.
	var all sync.WaitGroup
	together := make([]string, 4)
	for number := range together {
		all.Add(1)
		go func() {
			defer all.Done()
			together[number] = string(must(toolholdhttp.Read(try(server+"/together"), 1000)))
		}()
	}
	all.Wait()
	found["together"] = together

	client := http.Client{Timeout: 100 * time.Millisecond}
	_, err = client.Get(server + "/never")
	found["late"] = errors.Is(err, context.DeadlineExceeded)
	limited, cancel := context.WithCancel(context.Background())
	answer = must(http.DefaultClient.Do(must(http.NewRequestWithContext(limited, "GET", server+"/half", nil))))
	time.AfterFunc(50*time.Millisecond, cancel)
	half, err := io.ReadAll(answer.Body)
	found["cancelled"] = string(half) == "half" && errors.Is(err, context.Canceled)
	answer = try(server + "/half")
	time.AfterFunc(50*time.Millisecond, func() { answer.Body.Close() })
	half, err = io.ReadAll(answer.Body)
	found["closed"] = string(half) == "half" && err != nil

	// Bodies that nobody closes: their resources are given back in their order.
	for range 5 {
		answer := try(server + "/long")
		must(answer.Body.Read(make([]byte, 10)))
	}
	answer = nil
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	found["after"] = try(server + "/length").StatusCode
	return found, nil
}

var errBroken = errors.New("it is broken")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

func init() {
	toolhold.Add(toolhold.Tool{Name: "ask", Description: "Says what a server says."}, ask)
	toolhold.Add(toolhold.Tool{Name: "try_http", Description: "Tries requests."}, tryHTTP)
}
