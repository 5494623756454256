// A tool for each part of the SDK, for tests in a real host.

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "toolhold.h"
#include "bindings/plugin.h"

// The local array keeps the compiler from making a loop of it.
static size_t deep(size_t level) {
    volatile char kept[256];
    kept[0] = (char)level;
    return level == SIZE_MAX ? 0 : deep(level + 1) + (size_t)kept[0];
}

static toolhold_outcome fail(toolhold_call *call) {
    const char *how = toolhold_text(call, "how");
    if (strcmp(how, "own") == 0) {
        toolhold_add_text(call, "so far");
        toolhold_suggest(call, "wait");
        toolhold_retry_after_ms(call, 2500);
        return toolhold_fail(call, TOOLHOLD_RATE_LIMITED, "slow", "too often");
    }
    if (strcmp(how, "file") == 0) {
        size_t length;
        assert(toolhold_read_file(call, "nope", 100, &length) == NULL);
        return toolhold_fail_errno(call, "nope");
    }
    if (strcmp(how, "long") == 0) {
        char *message = toolhold_alloc(call, 20001);
        for (size_t i = 0; i < 20000; i += 2) {
            memcpy(message + i, "ü", 2);
        }
        return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, "long", "%s", message);
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
        return toolhold_answer_text(call, "%zu", deep(0));
    }
    if (strcmp(how, "null") == 0) {
        // Page zero is memory in WebAssembly; what lies beyond all memory isn't.
        return toolhold_answer_text(call, "%d", *(volatile int *)0xFFFFFF00);
    }
    if (strcmp(how, "type") == 0) {
        return toolhold_answer_text(call, "%d", (int)toolhold_integer(call, "how"));
    }
    return toolhold_answer_text(call, "not UTF-8: \xFF, and half a character: \xC3");
}

static toolhold_outcome talk(toolhold_call *call) {
    const char *words = toolhold_json(call, "words");
    size_t said = 0;
    for (const char *word; (word = toolhold_json_next(call, &words)) != NULL; said++) {
        toolhold_progress(-1, "%s", word);
        toolhold_emit(call, "%s", toolhold_json_text(call, word));
    }
    toolhold_log(TOOLHOLD_WARN, "said %zu", said);
    toolhold_log(TOOLHOLD_INFO, "left %d, cancelled %d", toolhold_remaining_ms() > 0, toolhold_cancelled());
    toolhold_add_text(call, "end");
    return toolhold_answer_emitted(call);
}

static toolhold_outcome setting(toolhold_call *call) {
    const char *value = toolhold_config(call, toolhold_text(call, "key"));
    return toolhold_answer_text(call, "%s", value != NULL ? toolhold_json_text(call, value) : "unset");
}

static toolhold_outcome types(toolhold_call *call) {
    return toolhold_answer_json(
        call, "{\"text\":%s,\"integer\":%lld,\"number\":%g,\"boolean\":%s,\"has\":%s,\"some\":%s}",
        toolhold_quote(call, toolhold_text(call, "text")), (long long)toolhold_integer(call, "integer"),
        toolhold_number(call, "number"), toolhold_boolean(call, "boolean") ? "true" : "false",
        toolhold_has(call, "some") ? "true" : "false",
        toolhold_has(call, "some") ? toolhold_json_field(call, toolhold_json(call, "some"), "a") : "null");
}

static plugin_string_t borrowed(const char *text) {
    return (plugin_string_t){(uint8_t *)text, strlen(text)};
}

// What the SDK has no function for is in the bindings.
static toolhold_outcome start(toolhold_call *call) {
    const char *program = toolhold_json(call, "program"), *word;
    plugin_string_t words[16];
    toolhold_host_process_command_t command = {.tag = TOOLHOLD_HOST_PROCESS_COMMAND_PROGRAM};
    command.val.program.ptr = words;
    while (command.val.program.len < 16 && (word = toolhold_json_next(call, &program)) != NULL) {
        words[command.val.program.len++] = borrowed(toolhold_json_text(call, word));
    }
    plugin_string_t text = borrowed(toolhold_text(call, "input"));
    plugin_list_u8_t input = {text.ptr, text.len};
    toolhold_host_process_options_t options = {0};
    toolhold_host_process_tuple2_finished_process_output_t done;
    toolhold_host_process_error_t error;
    if (!toolhold_host_process_run(&command, &input, &options, &done, &error)) {
        return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, NULL, "%.*s", (int)error.message.len,
                          error.message.ptr);
    }
    if (!done.f0.exit_code.is_some || done.f0.exit_code.val != 0) {
        return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, "exit-status", "it exited with %d",
                          done.f0.exit_code.val);
    }
    return toolhold_answer_text(call, "%.*s", (int)done.f1.stdout_.len, done.f1.stdout_.ptr);
}

static toolhold_outcome keep(toolhold_call *call) {
    size_t length = 0;
    const char *before = toolhold_store_get(call, "count", &length);
    if (before == NULL && toolhold_host_failed(call)) {
        return toolhold_fail_host(call);
    }
    const char *after = toolhold_format(call, "%sx", before != NULL ? before : "");
    if (!toolhold_store_put(call, "count", after, length + 1)) {
        return toolhold_fail_host(call);
    }
    return toolhold_answer_text(call, "%s", after);
}

// The code of the last failure of the host, or "ok".
static const char *code_of(toolhold_call *call, bool works) {
    if (works) {
        return "\"ok\"";
    }
    assert(toolhold_host_failed(call));
    return toolhold_quote(call, toolhold_host_code(call));
}

static const char *keys_of(toolhold_call *call, toolhold_query query) {
    size_t count;
    const toolhold_hit *hits = toolhold_index_search(call, &query, &count);
    assert(hits != NULL);
    const char *keys = "";
    for (size_t i = 0; i < count; i++) {
        keys = toolhold_format(call, "%s%s%s", keys, i > 0 ? "," : "", toolhold_quote(call, hits[i].key));
    }
    return keys;
}

static toolhold_outcome try_index(toolhold_call *call) {
    static const char *const tags[] = {"animal", NULL};
    static const int8_t vector[] = {1, -128}, near[] = {127, 0};
    static char long_data[60000];
    unsigned char data[256];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)i;
    }
    const toolhold_document documents[] = {
        {"a/1", "A quick fox", tags, vector, 2, data, sizeof data},
        {.key = "a/2", .text = "föx, fox and hound"},
        {.key = "b"},
    };
    if (!toolhold_index_put(call, documents, 3)) {
        return toolhold_fail_host(call);
    }
    const toolhold_document *first = toolhold_index_get(call, "a/1");
    bool is_whole = first != NULL && strcmp(first->text, "A quick fox") == 0 &&
                    strcmp(first->tags[0], "animal") == 0 && first->tags[1] == NULL &&
                    first->dimensions == 2 && first->vector[1] == -128 &&
                    first->length == sizeof data && memcmp(first->data, data, sizeof data) == 0;
    bool is_missing = toolhold_index_get(call, "none") == NULL && !toolhold_host_failed(call);
    toolhold_document *many = toolhold_alloc(call, 40 * sizeof *many);
    for (size_t i = 0; i < 40; i++) {
        many[i] = (toolhold_document){.key = toolhold_format(call, "c/%zu", i), .data = long_data, .length = sizeof long_data};
    }
    const char *no_key = code_of(call, toolhold_index_put(call, &(toolhold_document){.key = ""}, 1));
    const char *quota = code_of(call, toolhold_index_put(call, many, 40));
    const char *left = keys_of(call, (toolhold_query){0});
    bool is_deleted = toolhold_index_delete(call, "b") && toolhold_index_delete(call, "none");
    return toolhold_answer_json(
        call,
        "{\"words\":[%s],\"tagged\":[%s],\"near\":[%s],\"whole\":%s,\"missing\":%s,\"no_key\":%s,"
        "\"quota\":%s,\"left\":[%s],\"deleted\":%s,\"then\":[%s]}",
        keys_of(call, (toolhold_query){.words = "hound FOX"}),
        keys_of(call, (toolhold_query){.words = "fox", .tags = tags, .limit = 1}),
        keys_of(call, (toolhold_query){.prefix = "a/", .vector = near, .dimensions = 2, .limit = 1}),
        is_whole ? "true" : "false", is_missing ? "true" : "false", no_key, quota, left,
        is_deleted ? "true" : "false", keys_of(call, (toolhold_query){0}));
}

static toolhold_outcome try_schedule(toolhold_call *call) {
    const char *own = toolhold_text(call, "own"), *arguments = "{\"key\":\"colour\"}";
    toolhold_task tidy = {"tidy", "cron", "0 4 * * *", own, arguments, NULL, NULL};
    toolhold_task again = {"again", "every", "3600", "fixture-c__keep", NULL, "Europe/Berlin", "skip"};
    toolhold_task other = {.name = "other", .kind = "once", .when = "PT1H", .tool = "read"};
    toolhold_task invalid = {.name = "other", .kind = "cron", .when = "never", .tool = own, .arguments = arguments};
    toolhold_task third = {.name = "third", .kind = "every", .when = "60", .tool = own, .arguments = arguments};
    if (!toolhold_schedule_put(call, &tidy) || !toolhold_schedule_put(call, &again)) {
        return toolhold_fail_host(call);
    }
    const char *denied = code_of(call, toolhold_schedule_put(call, &other));
    const char *wrong = code_of(call, toolhold_schedule_put(call, &invalid));
    const char *quota = code_of(call, toolhold_schedule_put(call, &third));
    size_t count;
    const toolhold_task_state *states = toolhold_schedule_tasks(call, &count);
    const char *tasks = "";
    for (size_t i = 0; i < count; i++) {
        const toolhold_task *task = &states[i].task;
        const char *zone = task->zone != NULL ? toolhold_quote(call, task->zone) : "null";
        tasks = toolhold_format(call, "%s%s[\"%s\",\"%s\",\"%s\",%s,\"%s\",%s,%s]", tasks, i > 0 ? "," : "",
                             task->name, task->kind, task->when, zone, task->missed, task->arguments,
                             states[i].next != NULL && !states[i].paused ? "true" : "false");
    }
    bool removed = toolhold_schedule_remove(call, "again");
    bool removed_again = toolhold_schedule_remove(call, "again") || toolhold_host_failed(call);
    return toolhold_answer_json(
        call, "{\"other\":%s,\"invalid\":%s,\"quota\":%s,\"tasks\":[%s],\"removed\":[%s,%s]}", denied, wrong,
        quota, tasks, removed ? "true" : "false", removed_again ? "true" : "false");
}

static toolhold_outcome try_parts(toolhold_call *call) {
    plugin_string_t part = borrowed("attack"), texts[] = {borrowed("echo a"), borrowed("fail x"), borrowed("echo b")};
    plugin_list_u8_t inputs[3];
    for (size_t i = 0; i < 3; i++) {
        inputs[i] = (plugin_list_u8_t){texts[i].ptr, texts[i].len};
    }
    plugin_list_list_u8_t list = {inputs, 3};
    toolhold_host_parts_list_result_list_u8_error_t results;
    toolhold_host_parts_run(&part, &list, &results);
    const char *said = "";
    for (size_t i = 0; i < results.len; i++) {
        bool failed = results.ptr[i].is_err;
        plugin_string_t code = results.ptr[i].val.err.code;
        plugin_list_u8_t answer = results.ptr[i].val.ok;
        said = toolhold_format(call, "%s%s\"%.*s\"", said, i > 0 ? "," : "", (int)(failed ? code.len : answer.len),
                            failed ? code.ptr : answer.ptr);
    }
    toolhold_host_parts_list_result_list_u8_error_free(&results);
    return toolhold_answer_json(call, "[%s]", said);
}

static toolhold_outcome try_service(toolhold_call *call) {
    plugin_string_t name = borrowed("words"), program = borrowed("cat"), lines[] = {borrowed("one "), borrowed("two ")};
    plugin_list_string_t command = {&program, 1};
    toolhold_host_service_options_t options = {0};
    const char *said = "";
    for (size_t i = 0; i < 2; i++) {
        toolhold_host_service_own_connection_t held;
        toolhold_host_service_error_t error;
        if (!toolhold_host_service_connect(&name, &command, &options, &held, &error)) {
            return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, NULL, "%.*s", (int)error.message.len, error.message.ptr);
        }
        toolhold_host_service_borrow_connection_t words = toolhold_host_service_borrow_connection(held);
        plugin_list_u8_t read, line = {lines[i].ptr, lines[i].len};
        uint64_t patience = 20000, written = toolhold_host_service_method_connection_write(words, &line);
        toolhold_host_service_method_connection_read(words, &patience, &read);
        said = toolhold_format(call, "%s%s[%s,%d,\"%.*s\"]", said, i > 0 ? "," : "",
                            toolhold_host_service_method_connection_is_new(words) ? "true" : "false", (int)written,
                            (int)read.len, read.ptr);
        plugin_list_u8_free(&read);
        toolhold_host_service_method_connection_keep(words);
        toolhold_host_service_connection_drop_own(held);
    }
    bool stopped[2] = {false, false};
    for (size_t i = 0; i < 2; i++) {
        toolhold_host_service_error_t error;
        toolhold_host_service_stop(&name, &stopped[i], &error);
    }
    return toolhold_answer_json(call, "{\"said\":[%s],\"stopped\":[%s,%s]}", said, stopped[0] ? "true" : "false",
                             stopped[1] ? "true" : "false");
}

static const toolhold_argument own[] = {{.name = "own"}, {0}};
static const toolhold_argument how[] = {{.name = "how"}, {0}};
static const toolhold_argument words[] = {
    {
        .name = "words",
        .type = TOOLHOLD_JSON,
        .description = "What is said.",
        .schema = "\"type\":\"array\",\"items\":{\"type\":\"string\"}",
    },
    {0},
};
static const toolhold_argument key[] = {{.name = "key"}, {0}};
static const toolhold_argument every[] = {
    {.name = "text", .fallback = "\"fällt \\\"zurück\\\"\\u0021\""},
    {.name = "integer", .type = TOOLHOLD_INTEGER, .schema = "\"minimum\":-9007199254740993"},
    {.name = "number", .type = TOOLHOLD_NUMBER, .optional = true},
    {.name = "boolean", .type = TOOLHOLD_BOOLEAN, .optional = true},
    {.name = "some", .type = TOOLHOLD_JSON, .optional = true},
    {0},
};
static const toolhold_argument program[] = {
    {.name = "program", .type = TOOLHOLD_JSON, .schema = "\"type\":\"array\",\"items\":{\"type\":\"string\"}"},
    {.name = "input", .fallback = "\"\""},
    {0},
};

const toolhold_tool toolhold_tools[] = {
    {.name = "fail", .description = "Fails.", .arguments = how, .call = fail},
    {.name = "talk", .description = "Says each word.", .arguments = words, .call = talk},
    {.name = "setting", .description = "Says a setting.", .arguments = key, .call = setting},
    {.name = "types", .description = "Says its arguments.", .arguments = every, .call = types},
    {.name = "start", .description = "Runs a program.", .arguments = program, .call = start},
    {.name = "keep", .description = "Counts its calls.", .call = keep},
    {.name = "try_index", .description = "Tries the index.", .call = try_index},
    {.name = "try_schedule", .description = "Tries tasks.", .arguments = own, .call = try_schedule},
    {.name = "try_parts", .description = "Tries a part.", .call = try_parts},
    {.name = "try_service", .description = "Tries a service.", .call = try_service},
    {0},
};
