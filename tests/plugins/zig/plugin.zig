//! A plugin in Zig, written against the WIT of the contract alone: no SDK and no bindings. The
//! types have the layout of the canonical ABI, and the names of the exports are those of the
//! interface.

const std = @import("std");

const allocator = std.heap.wasm_allocator;

const String = extern struct {
    pointer: [*]const u8,
    length: usize,

    fn of(text: []const u8) String {
        // A slice without memory has any pointer, and the host checks that it is valid.
        if (text.len == 0) return .{ .pointer = "", .length = 0 };
        return .{ .pointer = text.ptr, .length = text.len };
    }

    fn slice(self: String) []const u8 {
        return self.pointer[0..self.length];
    }
};

fn List(comptime Item: type) type {
    return extern struct {
        pointer: [*]const Item,
        length: usize,

        fn of(items: []const Item) @This() {
            return .{ .pointer = items.ptr, .length = items.len };
        }
    };
}

fn Option(comptime Value: type) type {
    return extern struct {
        is_some: bool = false,
        value: Value = undefined,

        fn some(value: Value) @This() {
            return .{ .is_some = true, .value = value };
        }
    };
}

const Subject = extern struct { pointer: String, kind: String, access: String };

const Argument = extern struct {
    name: String,
    aliases: List(String) = .of(&.{}),
    roles: List(String) = .of(&.{}),
    base: Option(String) = .{},
    reads_with: List(String) = .of(&.{}),
    meta: Option(String) = .{},
};

const Preview = extern struct {
    file: String,
    content: Option(String),
    old: Option(String),
    new: Option(String),
    all: Option(String),
};

const Definition = extern struct {
    name: String,
    aliases: List(String) = .of(&.{}),
    title: Option(String) = .{},
    description: String,
    input_schema: String,
    output_schema: Option(String) = .{},
    promises: List(String) = .of(&.{}),
    subjects: List(Subject) = .of(&.{}),
    arguments: List(Argument) = .of(&.{}),
    preview: Option(Preview) = .{},
    answers_in: Option(String) = .{},
    fence: Option(String) = .{},
    meta: Option(String) = .{},
};

/// The case `text` of the variant `body`, which has room for the largest case.
const Body = extern struct { case: u8 = 0, text: String, room: [2]usize = .{ 0, 0 } };

const Content = extern struct {
    body: Body,
    media_type: Option(String) = .{},
    meta: Option(String) = .{},
};

const Output = extern struct {
    content: List(Content),
    structured: Option(String) = .{},
    after_emitted: bool = false,
    meta: Option(String) = .{},
};

/// Categories of failures, by their place in the WIT.
const invalid_parameters = 1;

const Failure = extern struct {
    category: u8,
    code: Option(String) = .{},
    message: String,
    suggestion: Option(String) = .{},
    retry_after_ms: Option(u64) = .{},
    content: List(Content) = .of(&.{}),
    structured: Option(String) = .{},
    meta: Option(String) = .{},
};

fn Result(comptime Ok: type) type {
    return extern struct {
        is_error: bool,
        value: extern union { ok: Ok, failure: Failure },
    };
}

const tools = [_]Definition{.{
    .name = .of("mirror"),
    .description = .of("Writes a text backwards."),
    .input_schema = .of(
        \\{"type":"object","properties":{"text":{"type":"string","description":"The text"}},
        \\"required":["text"],"additionalProperties":false}
    ),
    .promises = .of(&.{ .of("read-only"), .of("closed-world") }),
}};

var listed: Result(List(Definition)) = undefined;
var called: Result(Output) = undefined;
var answer: [1]Content = undefined;

export fn @"toolhold:tool/tools@0.1.0#list-tools"() *const Result(List(Definition)) {
    listed = .{ .is_error = false, .value = .{ .ok = .of(&tools) } };
    return &listed;
}

/// The record `invocation`, in its flat form.
export fn @"toolhold:tool/tools@0.1.0#call-tool"(
    tool: [*]const u8,
    tool_length: usize,
    arguments: [*]const u8,
    arguments_length: usize,
    attachments: usize,
    attachments_length: usize,
    has_meta: usize,
    meta: usize,
    meta_length: usize,
) *const Result(Output) {
    _ = .{ tool, tool_length, attachments, attachments_length, has_meta, meta, meta_length };
    called = call(arguments[0..arguments_length]);
    return &called;
}

fn call(arguments: []const u8) Result(Output) {
    const Mirror = struct { text: []const u8 };
    const parsed = std.json.parseFromSlice(Mirror, allocator, arguments, .{}) catch
        return fails("the arguments have no text");
    const text = parsed.value.text;
    var iterator = (std.unicode.Utf8View.init(text) catch return fails("the text isn't UTF-8"))
        .iterator();
    const mirrored = allocator.alloc(u8, text.len) catch @panic("out of memory");
    var end = text.len;
    while (iterator.nextCodepointSlice()) |letter| {
        end -= letter.len;
        @memcpy(mirrored[end..][0..letter.len], letter);
    }
    answer[0] = .{ .body = .{ .text = .of(mirrored) } };
    return .{ .is_error = false, .value = .{ .ok = .{ .content = .of(&answer) } } };
}

fn fails(message: []const u8) Result(Output) {
    const failure: Failure = .{ .category = invalid_parameters, .message = .of(message) };
    return .{ .is_error = true, .value = .{ .failure = failure } };
}

/// Takes memory for what the host passes. An instance serves one call, so nothing is freed.
export fn cabi_realloc(old: ?[*]u8, old_length: usize, alignment: usize, length: usize) [*]u8 {
    if (length == 0) return @ptrFromInt(alignment);
    const room = allocator.alignedAlloc(u8, .@"16", length) catch @panic("out of memory");
    if (old) |bytes| @memcpy(room[0..@min(old_length, length)], bytes[0..@min(old_length, length)]);
    return room.ptr;
}
