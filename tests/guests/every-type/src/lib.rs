//! A component that knows nothing of Toolhold: functions with every type of WIT.

mod bindings {
    #![allow(unsafe_code, reason = "generated")]

    use super::Component;

    wit_bindgen::generate!({ world: "every" });
    export!(Component);
}

use std::cell::Cell;

use bindings::exports::example::every::{odd, same};

/// What the component's functions belong to.
struct Component;

impl bindings::Guest for Component {
    fn greet(name: String) -> String {
        format!("Hello, {name}!")
    }
}

impl same::Guest for Component {
    fn small(a: i8, b: u8, c: i16, d: u16, e: i32, f: u32) -> (i8, u8, i16, u16, i32, u32) {
        (a, b, c, d, e, f)
    }

    fn large(signed: i64, unsigned: u64) -> (i64, u64) {
        (signed, unsigned)
    }

    fn floats(single: f32, double: f64) -> (f32, f64) {
        (single, double)
    }

    fn truth(value: bool) -> bool {
        value
    }

    fn letter(value: char) -> char {
        value
    }

    fn text(value: String) -> String {
        value
    }

    fn bytes(value: Vec<u8>) -> Vec<u8> {
        value
    }

    fn numbers(value: Vec<u16>) -> Vec<u16> {
        value
    }

    fn maybe(value: Option<u32>) -> Option<u32> {
        value
    }

    fn perhaps(value: Option<Option<u32>>) -> Option<Option<u32>> {
        value
    }

    fn move_(value: same::Point, by: same::Point) -> same::Point {
        same::Point { x: value.x + by.x, y: value.y + by.y, name: value.name.or(by.name) }
    }

    fn draw(value: same::Shape) -> same::Shape {
        value
    }

    fn paint(value: same::Colour) -> same::Colour {
        value
    }

    fn grant(value: same::Access) -> same::Access {
        value
    }

    fn inner(value: Result<u32, String>) -> (Result<u32, String>,) {
        (value,)
    }

    fn nothing() {}
}

/// A resource. No tool can hold one.
struct Counter(Cell<u32>);

impl odd::GuestCounter for Counter {
    fn new(start: u32) -> Self {
        Self(Cell::new(start))
    }

    fn next(&self) -> u32 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

impl odd::Guest for Component {
    type Counter = Counter;

    fn divide(a: i32, b: i32) -> Result<i32, String> {
        a.checked_div(b).ok_or_else(|| format!("can't divide {a} by {b}"))
    }

    fn find(_: String) -> Result<(), odd::Problem> {
        Err(odd::Problem::NotFound)
    }

    fn fail() -> Result<(), ()> {
        Err(())
    }

    fn crash(words: String) {
        eprintln!("{words}");
        panic!("this is a crash");
    }

    fn read_file(path: String) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string())
    }

    fn write_file(path: String, text: String) -> Result<(), String> {
        std::fs::write(path, text).map_err(|error| error.to_string())
    }

    fn flood(count: u32) -> Vec<u8> {
        vec![b'x'; count as usize]
    }

    fn spin() {
        loop {
            std::hint::spin_loop();
        }
    }

    fn count(counter: odd::CounterBorrow<'_>) -> u32 {
        counter.get::<Counter>().0.get()
    }

    fn a_name_that_is_longer_than_any_name_of_a_tool_may_be() {}
}
