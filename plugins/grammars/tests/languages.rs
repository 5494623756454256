//! What is found in sources of each language.

use code_model::{Language, Parsed, ParserQuestion};

/// The definitions as `kind container.name line`, and the names that are used.
fn read(language: Language, source: &str) -> (Vec<String>, Vec<String>) {
    let parsed = grammars::parse_as(language, source.as_bytes(), ParserQuestion::References)
        .expect("it is parsed");
    assert!(!parsed.has_errors && !parsed.limited, "{source}");
    let defined = parsed.definitions.iter().map(|one| {
        let dot = if one.container.is_empty() { "" } else { "." };
        let line = source.lines().nth(one.line as usize - 1).expect("the line exists");
        let named = line.get(one.column as usize..).is_some_and(|rest| rest.starts_with(&one.name));
        assert!(named, "{} isn't at {}:{} of {source}", one.name, one.line, one.column);
        assert!(one.start <= one.line && one.line <= one.end, "{one:?}");
        format!("{} {}{dot}{} {}", one.kind.name(), one.container, one.name, one.line)
    });
    let defined = defined.collect();
    (defined, parsed.references.into_iter().map(|one| one.name).collect())
}

#[track_caller]
fn check(language: Language, source: &str, expected: &[&str], used: &[&str]) {
    let (defined, references) = read(language, source);
    assert_eq!(defined, expected);
    for name in used {
        assert!(references.iter().any(|other| other == name), "{name} in {references:?}");
    }
}

#[test]
fn rust() {
    let source = "\
use std::fmt;
pub mod shapes {
    #[derive(Debug)]
    pub struct Point<T> { pub x: T, y: T }
    pub enum Shape { Dot, Round { radius: f64 } }
    pub trait Area { const UNIT: u8; type Out; fn area(&self) -> f64; }
    impl<T: Copy> Area for Point<T> {
        const UNIT: u8 = 1;
        type Out = T;
        fn area(&self) -> f64 { let local = helper(); local }
    }
}
static COUNT: u32 = 0;
union Bits { a: u32 }
type Alias = u8;
macro_rules! twice { ($e:expr) => { $e }; }
fn helper() -> f64 { const INNER: u8 = 1; fn nested() {} nested(); 0.0 }
impl fmt::Display for super::Wide<'_> { fn fmt(&self) {} }
";
    check(
        Language::Rust,
        source,
        &[
            "module shapes 2",
            "struct shapes.Point 4",
            "field shapes.Point.x 4",
            "field shapes.Point.y 4",
            "enum shapes.Shape 5",
            "variant shapes.Shape.Dot 5",
            "variant shapes.Shape.Round 5",
            "field shapes.Shape.Round.radius 5",
            "interface shapes.Area 6",
            "constant shapes.Area.UNIT 6",
            "type shapes.Area.Out 6",
            "method shapes.Area.area 6",
            "constant shapes.Point.UNIT 8",
            "type shapes.Point.Out 9",
            "method shapes.Point.area 10",
            "variable COUNT 13",
            "struct Bits 14",
            "field Bits.a 14",
            "type Alias 15",
            "macro twice 16",
            "function helper 17",
            "function helper.nested 17",
            "method Wide.fmt 18",
        ],
        &["helper", "Copy", "Display", "Area"],
    );
}

#[test]
fn python() {
    let source = "\
import os
LIMIT = 10
a, b = 1, 2
class Store(Base):
    kind: str = 'x'
    size: int
    @property
    def get(self, key):
        value = key
        def inner(): return value
        return inner()
async def fetch(): return Store().get(LIMIT)
";
    check(
        Language::Python,
        source,
        &[
            "constant LIMIT 2",
            "variable a 3",
            "variable b 3",
            "class Store 4",
            "field Store.kind 5",
            "field Store.size 6",
            "method Store.get 8",
            "function Store.get.inner 10",
            "function fetch 12",
        ],
        &["Base", "Store", "get", "LIMIT", "inner"],
    );
}

#[test]
fn javascript() {
    let source = "\
import { x } from 'y';
export const LIMIT = 1;
let state = {}, other;
export default class Shop extends Base {
  #secret = 1;
  handler = () => { const local = 1; };
  static open(a) { return this.#secret; }
  get size() { return 1; }
}
function* walk() {}
const area = async (w) => w * LIMIT;
const api = { start() {}, stop: function () {}, size: 3 };
exports.run = function run2() {};
Shop.prototype.close = function () {};
module.exports.late = () => { function inside() {} };
({ 'quoted-key': () => {}, 'other key'() {} });
";
    check(
        Language::JavaScript,
        source,
        &[
            "constant LIMIT 2",
            "variable state 3",
            "variable other 3",
            "class Shop 4",
            "field Shop.secret 5",
            "method Shop.handler 6",
            "method Shop.open 7",
            "method Shop.size 8",
            "function walk 10",
            "function area 11",
            "variable api 12",
            "method api.start 12",
            "method api.stop 12",
            "function run 13",
            "function run.run2 13",
            "method Shop.close 14",
            "function late 15",
            "function late.inside 15",
            "method quoted-key 16",
            "method other key 16",
        ],
        &["Base", "LIMIT", "Shop"],
    );
}

#[test]
fn typescript() {
    let source = "\
export interface Shape { area(): number; readonly name?: string }
export type Id = string | { inner: number };
export enum Level { Low, High = 3 }
declare function outer(a: Id): void;
namespace Inner.Most { export const x = 1; }
export abstract class Base<T> implements Shape {
  private count: number = 0;
  constructor(private readonly a: T) {}
  abstract area(): number;
  get name() { return ''; }
}
";
    let expected = [
        "interface Shape 1",
        "method Shape.area 1",
        "field Shape.name 1",
        "type Id 2",
        "enum Level 3",
        "variant Level.Low 3",
        "variant Level.High 3",
        "function outer 4",
        "module Inner.Most 5",
        "variable Inner.Most.x 5",
        "class Base 6",
        "field Base.count 7",
        "method Base.constructor 8",
        "method Base.area 9",
        "method Base.name 10",
    ];
    check(Language::TypeScript, source, &expected, &["Shape", "Id"]);
    check(Language::Tsx, source, &expected, &["Shape", "Id"]);
    let view = "export function View(p: Props) { return <Panel title={p.title}>a</Panel>; }\n";
    check(Language::Tsx, view, &["function View 1"], &["Props", "Panel", "title"]);
}

#[test]
fn go() {
    let source = "\
package shop

import \"fmt\"

const Limit, low = 1, 2

var state int

type Store[K any] struct {
\tkeys, values []string
}

type Reader interface {
\tRead(p []byte) (int, error)
}

type ID = string

type Handler func(int)

func (s *Store[K]) Get(key string) { local := 1; fmt.Println(local, Limit) }

func main() { var inner []struct{ a int }; type local struct{ b int }; _ = inner }
";
    check(
        Language::Go,
        source,
        &[
            "constant Limit 5",
            "constant low 5",
            "variable state 7",
            "struct Store 9",
            "field Store.keys 10",
            "field Store.values 10",
            "interface Reader 13",
            "method Reader.Read 14",
            "type ID 17",
            "type Handler 19",
            "method Store.Get 21",
            "function main 23",
            "struct main.local 23",
            "field main.local.b 23",
        ],
        &["Println", "Limit", "Store"],
    );
}

#[test]
fn c() {
    let source = "\
#define LIMIT 10
#define MAX(a, b) ((a) > (b) ? (a) : (b))
struct point { int x, *y; int (*callback)(int); };
typedef struct { int a; } wide_t, *wide_ptr;
typedef int (*compare)(const void *, const void *);
enum level { LOW, HIGH = 3 };
union either { int a; };
static const char *const names[] = { \"a\" };
int counter = LIMIT, other;
int prototype(int a);
static inline struct point *make(int n) { int local = n; return helper(local); }
struct forward;
";
    check(
        Language::C,
        source,
        &[
            "macro LIMIT 1",
            "macro MAX 2",
            "struct point 3",
            "field point.x 3",
            "field point.y 3",
            "field point.callback 3",
            "type wide_t 4",
            "type wide_ptr 4",
            "field a 4",
            "type compare 5",
            "enum level 6",
            "variant level.LOW 6",
            "variant level.HIGH 6",
            "struct either 7",
            "field either.a 7",
            "variable names 8",
            "variable counter 9",
            "variable other 9",
            "function prototype 10",
            "function make 11",
        ],
        &["LIMIT", "helper", "point"],
    );
}

#[test]
fn cpp() {
    let source = "\
namespace shop { namespace inner {
template <typename T> class Store : public Base<T> {
public:
  Store();
  virtual ~Store() = default;
  T get(int key) const { return value_; }
  bool operator==(const Store &other) const;
  enum class Level { Low };
private:
  T value_;
};
using Id = int;
} }
template <typename T> T shop::inner::Store<T>::get(int key) const { auto f = [] { int x = 1; }; return key; }
shop::inner::Store<int>::Store() {}
int main() { return Store<int>().get(1); }
namespace a::b::c { int Store; }
";
    check(
        Language::Cpp,
        source,
        &[
            "module shop 1",
            "module shop.inner 1",
            "class shop.inner.Store 2",
            "method shop.inner.Store.Store 4",
            "method shop.inner.Store.~Store 5",
            "method shop.inner.Store.get 6",
            "method shop.inner.Store.operator== 7",
            "enum shop.inner.Store.Level 8",
            "variant shop.inner.Store.Level.Low 8",
            "field shop.inner.Store.value_ 10",
            "type shop.inner.Id 12",
            "method shop.inner.Store.get 14",
            "method shop.inner.Store.Store 15",
            "function main 16",
            "module a.b.c 17",
            "module a.b 17",
            "module a 17",
            "variable a.b.c.Store 17",
        ],
        &["Base", "Store", "get"],
    );
}

#[test]
fn java() {
    let source = "\
package a.b;
public class Shop<T> extends Base implements Runnable {
  private static final int LIMIT = 1, LOW = 2;
  public Shop() { int local = 1; }
  @Override public void run() { Runnable r = () -> { int x = 1; }; helper(LIMIT); }
  enum Level { LOW, HIGH { void inner() {} } }
  interface Reader { int SIZE = 1; int read(); }
  record Point(int x, int y) { Point { check(x); } }
  @interface Note { String value() default \"\"; }
}
";
    check(
        Language::Java,
        source,
        &[
            "class Shop 2",
            "field Shop.LIMIT 3",
            "field Shop.LOW 3",
            "method Shop.Shop 4",
            "method Shop.run 5",
            "enum Shop.Level 6",
            "variant Shop.Level.LOW 6",
            "variant Shop.Level.HIGH 6",
            "method Shop.Level.HIGH.inner 6",
            "interface Shop.Reader 7",
            "constant Shop.Reader.SIZE 7",
            "method Shop.Reader.read 7",
            "class Shop.Point 8",
            "method Shop.Point.Point 8",
            "interface Shop.Note 9",
            "method Shop.Note.value 9",
        ],
        &["Base", "Runnable", "helper", "LIMIT"],
    );
}

#[test]
fn csharp() {
    let source = "\
namespace A.B {
  public class Shop<T> : Base {
    private const int Limit = 1;
    public event Action Changed, Closed;
    public string Name { get; set; }
    public Shop() { int local = 1; }
    ~Shop() {} public static Shop operator +(Shop a, Shop b) => a;
    public async Task Run() { void Inner() {} Helper(Limit); }
  }
  struct Point { public int X, Y; }
  enum Level { Low, High = 3 }
  interface IReader { int Read(); }
  delegate void Handler(int a);
  record Pair(int A) { public static implicit operator List<int>(Pair a) => a; }
}
";
    check(
        Language::CSharp,
        source,
        &[
            "module A.B 1",
            "class A.B.Shop 2",
            "field A.B.Shop.Limit 3",
            "field A.B.Shop.Changed 4",
            "field A.B.Shop.Closed 4",
            "field A.B.Shop.Name 5",
            "method A.B.Shop.Shop 6",
            "method A.B.Shop.Shop 7",
            "method A.B.Shop.+ 7",
            "method A.B.Shop.Run 8",
            "function A.B.Shop.Run.Inner 8",
            "struct A.B.Point 10",
            "field A.B.Point.X 10",
            "field A.B.Point.Y 10",
            "enum A.B.Level 11",
            "variant A.B.Level.Low 11",
            "variant A.B.Level.High 11",
            "interface A.B.IReader 12",
            "method A.B.IReader.Read 12",
            "type A.B.Handler 13",
            "class A.B.Pair 14",
            "method A.B.Pair.List 14",
        ],
        &["Base", "Helper", "Limit"],
    );
}

#[test]
fn ruby() {
    let source = "\
module Shop
  LIMIT = 1
  class Inner::Store < Base
    attr_accessor :name, :size
    def initialize(a)
      local = a
    end
    def self.open; new(LIMIT); end
    def ==(other); end
    alias close open
    alias_method :shut, :open
    class << self
      def build; end
    end
  end
end
def helper; end
";
    check(
        Language::Ruby,
        source,
        &[
            "module Shop 1",
            "constant Shop.LIMIT 2",
            "class Shop.Inner.Store 3",
            "field Shop.Inner.Store.name 4",
            "field Shop.Inner.Store.size 4",
            "method Shop.Inner.Store.initialize 5",
            "method Shop.Inner.Store.open 8",
            "method Shop.Inner.Store.== 9",
            "method Shop.Inner.Store.close 10",
            "method Shop.Inner.Store.shut 11",
            "method Shop.Inner.Store.build 13",
            "method helper 17",
        ],
        &["Base", "LIMIT", "open"],
    );
}

#[test]
fn php() {
    let source = "\
<?php
namespace A\\B;
const LIMIT = 1;
define('LOW', 2);
interface Reader { public function read(): int; }
trait Counts { protected int $count = 0; }
final class Shop extends Base implements Reader {
  use Counts;
  const SIZE = 3;
  private ?string $name = null, $other;
  public function __construct(private int $promoted) { $local = 1; }
  public function read(): int { return helper(self::SIZE); }
}
enum Level: string { case Low = 'l'; }
function helper() { $f = function () { return 1; }; }
";
    check(
        Language::Php,
        source,
        &[
            "module A\\B 2",
            "constant LIMIT 3",
            "constant LOW 4",
            "interface Reader 5",
            "method Reader.read 5",
            "interface Counts 6",
            "field Counts.count 6",
            "class Shop 7",
            "constant Shop.SIZE 9",
            "field Shop.name 10",
            "field Shop.other 10",
            "method Shop.__construct 11",
            "field Shop.__construct.promoted 11",
            "method Shop.read 12",
            "enum Level 14",
            "variant Level.Low 14",
            "function helper 15",
        ],
        &["Base", "helper", "SIZE", "Counts"],
    );
}

#[test]
fn bash() {
    let source = "\
#!/bin/bash
LIMIT=10
helper() { local x=1; inner=2; grep -q a b; }
function other { helper \"$LIMIT\"; }
";
    check(
        Language::Bash,
        source,
        &["constant LIMIT 2", "function helper 3", "function other 4"],
        &["helper", "grep", "LIMIT"],
    );
}

fn hostile(language: Language, source: &[u8]) -> Parsed {
    let started = std::time::Instant::now();
    let parsed =
        grammars::parse_as(language, source, ParserQuestion::References).expect("it is no error");
    let taken = started.elapsed();
    assert!(taken.as_secs() < 60, "{language:?} took {taken:?}");
    // What it answers can always be sent.
    let sent = Parsed::decode(&parsed.encode()).expect("it is valid");
    assert_eq!(sent.definitions.len(), parsed.definitions.len());
    parsed
}

#[test]
fn hostile_bytes_end_in_every_language() {
    let deep = |open: &str, close: &str| [open.repeat(3_000), close.repeat(3_000)].concat();
    // Larger ones take a scanner of a grammar too long, which only the host's bound ends.
    let mut sources: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0; 1000],
        b"fn a\0b() {}\0 class \0".repeat(50),
        b"\xff\xfe def \xc3( class \x80 ".repeat(500),
        "\u{202e}fn \u{0}evil() {}".as_bytes().to_vec(),
        deep("(", ")").into_bytes(),
        deep("{", "}").into_bytes(),
        deep("[", "").into_bytes(),
        deep("if (a) { ", "").into_bytes(),
        deep("f(function () { ", "})").into_bytes(),
        "a<b<".repeat(3_000).into_bytes(),
        "\"".repeat(3_000).into_bytes(),
        "x".repeat(1 << 20).into_bytes(),
        "a b ".repeat(10_000).into_bytes(),
    ];
    sources.push((0..=255).cycle().take(20_000).collect());
    for language in Language::ALL {
        for source in &sources {
            hostile(language, source);
        }
    }
}

#[test]
fn deep_nesting_is_said_to_be_left_out() {
    let source = ["fn a() { ".repeat(3_000), "}".repeat(3_000)].concat();
    let parsed = hostile(Language::Rust, source.as_bytes());
    assert!(parsed.limited && parsed.definitions.len() > 100);
    // A path that grew with each of them would take megabytes.
    assert!(parsed.definitions.iter().all(|one| one.container.len() <= 256));
}

#[test]
fn ambiguous_source_ends() {
    for source in ["a<b<c<d>>>(e)*".repeat(3_000), "T(*(*(*".repeat(3_000), "a*b;".repeat(30_000)] {
        hostile(Language::Cpp, source.as_bytes());
    }
}

#[test]
fn one_long_line_is_bounded() {
    let line = "a.b=function(){return c(d)};".repeat(10_000);
    let parsed = hostile(Language::JavaScript, line.as_bytes());
    assert!(parsed.limited && parsed.references.len() <= 200);
}

#[test]
fn large_source_is_refused() {
    let source = vec![b'\n'; code_model::MAX_SOURCE + 1];
    let error = grammars::parse_as(Language::Rust, &source, ParserQuestion::References)
        .expect_err("it is too large");
    assert!(error.contains("4194305") && error.contains("4194304"), "{error}");
}

#[test]
fn broken_part_of_a_source_is_said_and_the_rest_is_read() {
    let source = b"fn before() {}\nfn ( { ] %%\n}\nfn after() {}\n";
    let parsed = grammars::parse_as(Language::Rust, source, ParserQuestion::References)
        .expect("it is parsed");
    assert!(parsed.has_errors);
    let names: Vec<_> = parsed.definitions.iter().map(|one| one.name.as_str()).collect();
    assert!(names.contains(&"before") && names.contains(&"after"), "{names:?}");
}
