// Package types has what the generated bindings are made of.
package types

const (
	OptionNone = 0
	OptionSome = 1
	ResultOk   = 0
	ResultErr  = 1
)

// Option is a value that may be missing.
type Option[T any] struct {
	tag   uint8
	value T
}

func None[T any]() Option[T] { return Option[T]{} }

func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }

func (o Option[T]) Tag() uint8 { return o.tag }

func (o Option[T]) Some() T {
	if o.tag != OptionSome {
		panic("there is no value")
	}
	return o.value
}

// Result is a value or an error.
type Result[T any, E any] struct {
	tag   uint8
	value T
	err   E
}

func Ok[T any, E any](value T) Result[T, E] { return Result[T, E]{tag: ResultOk, value: value} }

func Err[T any, E any](err E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: err} }

func (r Result[T, E]) Tag() uint8 { return r.tag }

func (r Result[T, E]) Ok() T {
	if r.tag != ResultOk {
		panic("it is an error")
	}
	return r.value
}

func (r Result[T, E]) Err() E {
	if r.tag != ResultErr {
		panic("it is no error")
	}
	return r.err
}

// Tuple2 is a pair.
type Tuple2[A any, B any] struct {
	F0 A
	F1 B
}

// Unit is no value.
type Unit struct{}
