//go:build wasip1

package toolholdhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolhold"
	"toolhold/internal/host"
	"toolhold/internal/types"
	"toolhold/internal/wit/wasi_http_outgoing_handler"
	"toolhold/internal/wit/wasi_http_types"
	"toolhold/internal/wit/wasi_io_poll"
	"toolhold/internal/wit/wasi_io_streams"
)

// The most bytes that are taken from or given to a stream at once.
const maxPart = 64 << 10

// Headers of the connection, which is the host's. The host refuses them, or replaces them.
var ofConnection = map[string]bool{
	"Connection":          true,
	"Content-Length":      true,
	"Host":                true,
	"Http2-Settings":      true,
	"Keep-Alive":          true,
	"Proxy-Authenticate":  true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,
}

// unmanaged takes a resource of the host from Go's collector, which would drop those that belong
// together in any order. The host ends an instance that drops a resource before its parts.
func unmanaged[T interface{ TakeHandle() int32 }](resource T, make func(int32) T) T {
	return make(resource.TakeHandle())
}

func send(request *http.Request) (*http.Response, error) {
	outgoing, err := toOutgoing(request)
	if err != nil {
		return nil, err
	}
	defer outgoing.Drop()
	var content *upload
	if request.Body != nil && request.Body != http.NoBody {
		body := unmanaged(outgoing.Body().Ok(), wasi_http_types.OutgoingBodyFromBorrowHandle)
		stream := unmanaged(body.Write().Ok(), wasi_io_streams.OutputStreamFromBorrowHandle)
		content = &upload{body, stream}
		defer content.drop()
	}
	future, err := handle(outgoing)
	if err != nil {
		return nil, err
	}
	defer future.Drop()
	stopped := request.Context().Err
	if content != nil {
		if err := content.send(stopped, request.Body); err != nil {
			return nil, err
		}
	}
	if err := wait(stopped, future.Subscribe()); err != nil {
		return nil, err
	}
	incoming, err := answerOf(future)
	if err != nil {
		return nil, err
	}
	defer incoming.Drop()
	return toResponse(request, incoming), nil
}

func toOutgoing(request *http.Request) (*wasi_http_types.OutgoingRequest, error) {
	fields := wasi_http_types.MakeFields()
	defer fields.Drop()
	for name, values := range request.Header {
		if ofConnection[name] {
			continue
		}
		for _, value := range values {
			if fields.Append(name, []byte(value)).Tag() == types.ResultErr {
				return nil, &toolhold.Failure{Code: "invalid-header", Message: fmt.Sprintf("the header %q isn't valid", name)}
			}
		}
	}
	outgoing := wasi_http_types.MakeOutgoingRequest(fields)
	scheme := wasi_http_types.MakeSchemeHttps()
	if request.URL.Scheme == "http" {
		scheme = wasi_http_types.MakeSchemeHttp()
	}
	method := request.Method
	if method == "" {
		method = http.MethodGet
	}
	for what, result := range map[string]types.Result[types.Unit, types.Unit]{
		"method " + method:             outgoing.SetMethod(wasi_http_types.MakeMethodOther(method)),
		"scheme " + request.URL.Scheme: outgoing.SetScheme(types.Some(scheme)),
		"host " + request.URL.Host:     outgoing.SetAuthority(types.Some(request.URL.Host)),
		"path of the address":          outgoing.SetPathWithQuery(types.Some(request.URL.RequestURI())),
	} {
		if result.Tag() == types.ResultErr {
			outgoing.Drop()
			return nil, &toolhold.Failure{Code: "invalid-request", Message: "the " + what + " isn't valid"}
		}
	}
	return outgoing, nil
}

func handle(outgoing *wasi_http_types.OutgoingRequest) (future *wasi_http_types.FutureIncomingResponse, err error) {
	host.Asked(func() bool {
		result := wasi_http_outgoing_handler.Handle(outgoing, types.None[*wasi_http_types.RequestOptions]())
		if result.Tag() == types.ResultErr {
			err = toFailure(result.Err())
		} else {
			future = unmanaged(result.Ok(), wasi_http_types.FutureIncomingResponseFromBorrowHandle)
		}
		return true
	})
	return future, err
}

func answerOf(future *wasi_http_types.FutureIncomingResponse) (incoming *wasi_http_types.IncomingResponse, err error) {
	host.Asked(func() bool {
		result := future.Get().Some().Ok()
		if result.Tag() == types.ResultErr {
			err = toFailure(result.Err())
		} else {
			incoming = unmanaged(result.Ok(), wasi_http_types.IncomingResponseFromBorrowHandle)
		}
		return true
	})
	return incoming, err
}

func toResponse(request *http.Request, incoming *wasi_http_types.IncomingResponse) *http.Response {
	status := int(incoming.Status())
	header := http.Header{}
	fields := incoming.Headers()
	host.Asked(func() bool {
		for _, each := range fields.Entries() {
			header.Add(strings.Clone(each.F0), string(each.F1))
		}
		return true
	})
	fields.Drop()
	length, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil || length < 0 {
		length = -1
	}
	consumed := unmanaged(incoming.Consume().Ok(), wasi_http_types.IncomingBodyFromBorrowHandle)
	stream := unmanaged(consumed.Stream().Ok(), wasi_io_streams.InputStreamFromBorrowHandle)
	body := &download{context: request.Context(), parts: &parts{stream: stream, body: consumed}}
	runtime.AddCleanup(body, (*parts).drop, body.parts)
	return &http.Response{
		Status:        strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status)),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          body,
		ContentLength: length,
		Request:       request,
	}
}

// upload is the body of a request.
type upload struct {
	body   *wasi_http_types.OutgoingBody
	stream *wasi_io_streams.OutputStream
}

// drop ends a request whose body wasn't sent.
func (u *upload) drop() {
	u.stream.Drop()
	u.body.Drop()
}

// send writes what it reads, to the end. If the host takes no more, the answer says why.
func (u *upload) send(stopped func() error, from io.Reader) error {
	buffer := make([]byte, maxPart)
	for {
		read, failed := from.Read(buffer)
		for part := buffer[:read]; len(part) > 0; {
			free := u.stream.CheckWrite()
			if free.Tag() == types.ResultErr {
				return nil
			}
			if free.Ok() == 0 {
				if err := wait(stopped, u.stream.Subscribe()); err != nil {
					return err
				}
				continue
			}
			now := part[:min(uint64(len(part)), free.Ok())]
			if u.stream.Write(now).Tag() == types.ResultErr {
				return nil
			}
			part = part[len(now):]
		}
		if failed == io.EOF {
			break
		}
		if failed != nil {
			return failed
		}
	}
	u.stream.Drop()
	host.Asked(func() bool {
		wasi_http_types.OutgoingBodyFinish(u.body, types.None[*wasi_http_types.Trailers]())
		return true
	})
	return nil
}

// download is the body of an answer.
type download struct {
	context context.Context
	lock    sync.Mutex
	closed  atomic.Bool
	parts   *parts
	failed  error
}

// parts are the resources of a body.
type parts struct {
	stream *wasi_io_streams.InputStream
	body   *wasi_http_types.IncomingBody
}

func (p *parts) drop() {
	p.stream.Drop()
	p.body.Drop()
}

func (d *download) Read(into []byte) (int, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for len(into) > 0 && d.failed == nil {
		if d.failed = d.stopped(); d.failed != nil {
			break
		}
		read := d.take(into)
		if read > 0 {
			return read, nil
		}
		if d.failed == nil {
			d.failed = wait(d.stopped, d.parts.stream.Subscribe())
		}
	}
	if d.failed != nil {
		d.parts.drop()
	}
	return 0, d.failed
}

// take reads what there is.
func (d *download) take(into []byte) (read int) {
	host.Asked(func() bool {
		result := d.parts.stream.Read(uint64(min(len(into), maxPart)))
		if result.Tag() == types.ResultOk {
			read = copy(into, result.Ok())
			return true
		}
		failed := result.Err()
		if failed.Tag() == wasi_io_streams.StreamErrorClosed {
			d.failed = io.EOF
			return true
		}
		why := failed.LastOperationFailed()
		defer why.Drop()
		if code := wasi_http_types.HttpErrorCode(why); code.Tag() == types.OptionSome {
			d.failed = toFailure(code.Some())
		} else {
			d.failed = &toolhold.Failure{Category: toolhold.NetworkError, Code: "disconnected", Message: "the answer broke off"}
		}
		return true
	})
	return read
}

func (d *download) stopped() error {
	if d.closed.Load() {
		return errors.New("the body of the answer is closed")
	}
	return d.context.Err()
}

// Close ends a Read that waits, too.
func (d *download) Close() error {
	d.closed.Store(true)
	d.lock.Lock()
	defer d.lock.Unlock()
	d.parts.drop()
	return nil
}

// wait waits until something is ready or stopped. It sleeps in between, and doesn't wait in the
// host, so that other goroutines and timers run: a sixteenth of the time that has passed.
func wait(stopped func() error, on *wasi_io_poll.Pollable) error {
	defer on.Drop()
	for began := time.Now(); !on.Ready(); {
		if err := stopped(); err != nil {
			return err
		}
		time.Sleep(min(max(time.Since(began)/16, 20*time.Microsecond), 5*time.Millisecond))
	}
	return nil
}

// The codes of WASI, in its order.
var codes = [...]string{
	"dns-timeout",
	"dns-error",
	"destination-not-found",
	"destination-unavailable",
	"destination-ip-prohibited",
	"destination-ip-unroutable",
	"connection-refused",
	"connection-terminated",
	"connection-timeout",
	"connection-read-timeout",
	"connection-write-timeout",
	"connection-limit-reached",
	"tls-protocol-error",
	"tls-certificate-error",
	"tls-alert-received",
	"http-request-denied",
	"http-request-length-required",
	"http-request-body-size",
	"http-request-method-invalid",
	"http-request-uri-invalid",
	"http-request-uri-too-long",
	"http-request-header-section-size",
	"http-request-header-size",
	"http-request-trailer-section-size",
	"http-request-trailer-size",
	"http-response-incomplete",
	"http-response-header-section-size",
	"http-response-header-size",
	"http-response-body-size",
	"http-response-trailer-section-size",
	"http-response-trailer-size",
	"http-response-transfer-coding",
	"http-response-content-coding",
	"http-response-timeout",
	"http-upgrade-failed",
	"http-protocol-error",
	"loop-detected",
	"configuration-error",
	"internal-error",
}

// The beginnings of the codes of what may work at another time.
var ofNetwork = []string{"dns-", "destination-", "connection-", "tls-", "http-response-incomplete"}

// toFailure copies what the host handed over.
func toFailure(err wasi_http_types.ErrorCode) *toolhold.Failure {
	code := codes[err.Tag()]
	failure := &toolhold.Failure{Code: code, Message: "the request failed: " + strings.ReplaceAll(code, "-", " ")}
	var detail types.Option[string]
	size := types.None[uint64]()
	switch err.Tag() {
	case wasi_http_types.ErrorCodeInternalError:
		detail = err.InternalError()
	case wasi_http_types.ErrorCodeDnsError:
		detail = err.DnsError().Rcode
	case wasi_http_types.ErrorCodeHttpResponseContentCoding:
		detail = err.HttpResponseContentCoding()
	case wasi_http_types.ErrorCodeHttpRequestBodySize:
		size = err.HttpRequestBodySize()
	case wasi_http_types.ErrorCodeHttpResponseBodySize:
		size = err.HttpResponseBodySize()
	}
	if detail.Tag() == types.OptionSome {
		failure.Message += " (" + detail.Some() + ")"
	}
	if size.Tag() == types.OptionSome {
		failure.Message += fmt.Sprintf(" (the limit is %d bytes)", size.Some())
	}
	if strings.Contains(code, "timeout") {
		failure.Category = toolhold.Timeout
		return failure
	}
	for _, beginning := range ofNetwork {
		if strings.HasPrefix(code, beginning) && !strings.HasSuffix(code, "prohibited") {
			failure.Category = toolhold.NetworkError
		}
	}
	return failure
}
