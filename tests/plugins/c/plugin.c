// A tool for each part of the SDK, for tests in a real host.

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "berth.h"
#include "bindings/plugin.h"

// The local array keeps the compiler from making a loop of it.
static size_t deep(size_t level) {
    volatile char kept[256];
    kept[0] = (char)level;
    return level == SIZE_MAX ? 0 : deep(level + 1) + (size_t)kept[0];
}

static berth_outcome fail(berth_call *call) {
    const char *how = berth_text(call, "how");
    if (strcmp(how, "own") == 0) {
        berth_add_text(call, "so far");
        berth_suggest(call, "wait");
        berth_retry_after_ms(call, 2500);
        return berth_fail(call, BERTH_RATE_LIMITED, "slow", "too often");
    }
    if (strcmp(how, "file") == 0) {
        size_t length;
        assert(berth_read_file(call, "nope", 100, &length) == NULL);
        return berth_fail_errno(call, "nope");
    }
    if (strcmp(how, "long") == 0) {
        char *message = berth_alloc(call, 20001);
        for (size_t i = 0; i < 20000; i += 2) {
            memcpy(message + i, "ü", 2);
        }
        return berth_fail(call, BERTH_PERMANENT_FAILURE, "long", "%s", message);
    }
    if (strcmp(how, "assert") == 0) {
        assert(how == NULL && "seven is no prime");
    }
    if (strcmp(how, "abort") == 0) {
        abort();
    }
    if (strcmp(how, "exit") == 0) {
        exit(3);
    }
    if (strcmp(how, "deep") == 0) {
        return berth_answer_text(call, "%zu", deep(0));
    }
    if (strcmp(how, "null") == 0) {
        // Page zero is memory in WebAssembly; what lies beyond all memory isn't.
        return berth_answer_text(call, "%d", *(volatile int *)0xFFFFFF00);
    }
    if (strcmp(how, "type") == 0) {
        return berth_answer_text(call, "%d", (int)berth_integer(call, "how"));
    }
    return berth_answer_text(call, "not UTF-8: \xFF, and half a character: \xC3");
}

static berth_outcome talk(berth_call *call) {
    const char *words = berth_json(call, "words");
    size_t said = 0;
    for (const char *word; (word = berth_json_next(call, &words)) != NULL; said++) {
        berth_progress(-1, "%s", word);
        berth_emit(call, "%s", berth_json_text(call, word));
    }
    berth_log(BERTH_WARN, "said %zu", said);
    berth_log(BERTH_INFO, "left %d, cancelled %d", berth_remaining_ms() > 0, berth_cancelled());
    berth_add_text(call, "end");
    return berth_answer_emitted(call);
}

static berth_outcome setting(berth_call *call) {
    const char *value = berth_config(call, berth_text(call, "key"));
    return berth_answer_text(call, "%s", value != NULL ? berth_json_text(call, value) : "unset");
}

static berth_outcome types(berth_call *call) {
    return berth_answer_json(
        call, "{\"text\":%s,\"integer\":%lld,\"number\":%g,\"boolean\":%s,\"has\":%s,\"some\":%s}",
        berth_quote(call, berth_text(call, "text")), (long long)berth_integer(call, "integer"),
        berth_number(call, "number"), berth_boolean(call, "boolean") ? "true" : "false",
        berth_has(call, "some") ? "true" : "false",
        berth_has(call, "some") ? berth_json_field(call, berth_json(call, "some"), "a") : "null");
}

static plugin_string_t borrowed(const char *text) {
    return (plugin_string_t){(uint8_t *)text, strlen(text)};
}

// What the SDK has no function for is in the bindings.
static berth_outcome start(berth_call *call) {
    const char *program = berth_json(call, "program"), *word;
    plugin_string_t words[16];
    berth_host_process_command_t command = {.tag = BERTH_HOST_PROCESS_COMMAND_PROGRAM};
    command.val.program.ptr = words;
    while (command.val.program.len < 16 && (word = berth_json_next(call, &program)) != NULL) {
        words[command.val.program.len++] = borrowed(berth_json_text(call, word));
    }
    plugin_string_t text = borrowed(berth_text(call, "input"));
    plugin_list_u8_t input = {text.ptr, text.len};
    berth_host_process_options_t options = {0};
    berth_host_process_tuple2_finished_process_output_t done;
    berth_host_process_error_t error;
    if (!berth_host_process_run(&command, &input, &options, &done, &error)) {
        return berth_fail(call, BERTH_PERMANENT_FAILURE, NULL, "%.*s", (int)error.message.len,
                          error.message.ptr);
    }
    if (!done.f0.exit_code.is_some || done.f0.exit_code.val != 0) {
        return berth_fail(call, BERTH_PERMANENT_FAILURE, "exit-status", "it exited with %d",
                          done.f0.exit_code.val);
    }
    return berth_answer_text(call, "%.*s", (int)done.f1.stdout_.len, done.f1.stdout_.ptr);
}

static berth_outcome keep(berth_call *call) {
    size_t length = 0;
    const char *before = berth_store_get(call, "count", &length);
    if (before == NULL && berth_host_failed(call)) {
        return berth_fail_host(call);
    }
    const char *after = berth_format(call, "%sx", before != NULL ? before : "");
    if (!berth_store_put(call, "count", after, length + 1)) {
        return berth_fail_host(call);
    }
    return berth_answer_text(call, "%s", after);
}

static const berth_argument how[] = {{.name = "how"}, {0}};
static const berth_argument words[] = {
    {
        .name = "words",
        .type = BERTH_JSON,
        .description = "What is said.",
        .schema = "\"type\":\"array\",\"items\":{\"type\":\"string\"}",
    },
    {0},
};
static const berth_argument key[] = {{.name = "key"}, {0}};
static const berth_argument every[] = {
    {.name = "text", .fallback = "\"fällt \\\"zurück\\\"\\u0021\""},
    {.name = "integer", .type = BERTH_INTEGER, .schema = "\"minimum\":-9007199254740993"},
    {.name = "number", .type = BERTH_NUMBER, .optional = true},
    {.name = "boolean", .type = BERTH_BOOLEAN, .optional = true},
    {.name = "some", .type = BERTH_JSON, .optional = true},
    {0},
};
static const berth_argument program[] = {
    {.name = "program", .type = BERTH_JSON, .schema = "\"type\":\"array\",\"items\":{\"type\":\"string\"}"},
    {.name = "input", .fallback = "\"\""},
    {0},
};

const berth_tool berth_tools[] = {
    {.name = "fail", .description = "Fails.", .arguments = how, .call = fail},
    {.name = "talk", .description = "Says each word.", .arguments = words, .call = talk},
    {.name = "setting", .description = "Says a setting.", .arguments = key, .call = setting},
    {.name = "types", .description = "Says its arguments.", .arguments = every, .call = types},
    {.name = "start", .description = "Runs a program.", .arguments = program, .call = start},
    {.name = "keep", .description = "Counts its calls.", .call = keep},
    {0},
};
