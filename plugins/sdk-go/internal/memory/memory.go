//go:build wasip1

// Package memory gives the host memory for what it hands to the plugin.
//
// The host asks for memory (cabi_realloc) in three situations, and in none of them may Go's own
// allocator run:
//
//   - while the program starts, before Go's runtime exists;
//   - inside a call of the host, where a collection of garbage would read the clock, and so call
//     the host in turn, which ends the instance;
//   - for the adapter between the versions of WASI, which would otherwise grow the memory that Go
//     believes to own alone.
//
// So it comes from chunks that Go's runtime takes from the system and never collects. Who gets
// something from there copies it first, and then calls Unpin, which makes the chunks free again. What
// was asked for during the start stays: the adapter keeps its state there.
package memory

import (
	"runtime"
	"unsafe"
)

//go:linkname sbrk runtime.sbrk
func sbrk(n uintptr) unsafe.Pointer

type chunk struct {
	start, size uintptr
}

// Each chunk is at least as large as all before it, so these are enough for all memory.
var (
	chunks  [48]chunk
	count   int
	current int
	used    uintptr
)

// Where free memory begins after an Unpin.
var (
	firstChunk int
	firstUsed  uintptr
)

const smallest = 64 << 10

func init() {
	firstChunk, firstUsed = current, used
}

// take returns zero if the system has no more memory.
//
//go:nosplit
func take(size, align uintptr) uintptr {
	for {
		if current < count {
			at := (chunks[current].start + used + align - 1) &^ (align - 1)
			if at+size <= chunks[current].start+chunks[current].size {
				used = at + size - chunks[current].start
				return at
			}
			current++
			used = 0
			continue
		}
		if count == len(chunks) {
			return 0
		}
		length := uintptr(smallest)
		for _, each := range chunks[:count] {
			length += each.size
		}
		if length < size+align {
			length = size + align
		}
		start := sbrk(length)
		if start == nil && length > size+align {
			length = size + align
			start = sbrk(length)
		}
		if start == nil {
			return 0
		}
		chunks[count] = chunk{uintptr(start), length}
		count++
	}
}

// It runs on the stack of the goroutine that called the host, and must not enter the scheduler.
//
//go:nosplit
//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uintptr) unsafe.Pointer {
	at := align
	if size > 0 {
		if at = take(size, align); at == 0 {
			panic("out of memory")
		}
	}
	// The conversion hides from `vet` that this is an address.
	to := *(*unsafe.Pointer)(unsafe.Pointer(&at))
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(to), size), unsafe.Slice((*byte)(old), min(oldSize, size)))
	}
	return to
}

// Unpin makes the memory free again.
func Unpin() {
	current, used = firstChunk, firstUsed
}

// Allocate returns memory of Go's for what the plugin hands to the host.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	var memory unsafe.Pointer
	if align <= 4 {
		memory = unsafe.Pointer(unsafe.SliceData(make([]uint32, (size+3)/4)))
	} else {
		memory = unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	}
	pinner.Pin(memory)
	return memory
}

// Handle is the number of a resource of the host.
type Handle struct {
	value int32
}

func MakeHandle(value int32) *Handle { return &Handle{value} }

func (h *Handle) Use() int32 {
	if h.value == 0 {
		panic("the resource was given away")
	}
	return h.value
}

func (h *Handle) Take() int32 {
	value := h.Use()
	h.value = 0
	return value
}

func (h *Handle) TakeOrNil() int32 {
	value := h.value
	h.value = 0
	return value
}

func (h *Handle) Set(value int32) { h.value = value }
