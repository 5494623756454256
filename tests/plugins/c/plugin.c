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

// The code of the last failure of the host, or "ok".
static const char *code_of(berth_call *call, bool works) {
    if (works) {
        return "\"ok\"";
    }
    assert(berth_host_failed(call));
    return berth_quote(call, berth_host_code(call));
}

static const char *keys_of(berth_call *call, berth_query query) {
    size_t count;
    const berth_hit *hits = berth_index_search(call, &query, &count);
    assert(hits != NULL);
    const char *keys = "";
    for (size_t i = 0; i < count; i++) {
        keys = berth_format(call, "%s%s%s", keys, i > 0 ? "," : "", berth_quote(call, hits[i].key));
    }
    return keys;
}

static berth_outcome try_index(berth_call *call) {
    static const char *const tags[] = {"animal", NULL};
    static const int8_t vector[] = {1, -128}, near[] = {127, 0};
    static char long_data[60000];
    unsigned char data[256];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)i;
    }
    const berth_document documents[] = {
        {"a/1", "A quick fox", tags, vector, 2, data, sizeof data},
        {.key = "a/2", .text = "föx, fox and hound"},
        {.key = "b"},
    };
    if (!berth_index_put(call, documents, 3)) {
        return berth_fail_host(call);
    }
    const berth_document *first = berth_index_get(call, "a/1");
    bool is_whole = first != NULL && strcmp(first->text, "A quick fox") == 0 &&
                    strcmp(first->tags[0], "animal") == 0 && first->tags[1] == NULL &&
                    first->dimensions == 2 && first->vector[1] == -128 &&
                    first->length == sizeof data && memcmp(first->data, data, sizeof data) == 0;
    bool is_missing = berth_index_get(call, "none") == NULL && !berth_host_failed(call);
    berth_document *many = berth_alloc(call, 40 * sizeof *many);
    for (size_t i = 0; i < 40; i++) {
        many[i] = (berth_document){.key = berth_format(call, "c/%zu", i), .data = long_data, .length = sizeof long_data};
    }
    const char *no_key = code_of(call, berth_index_put(call, &(berth_document){.key = ""}, 1));
    const char *quota = code_of(call, berth_index_put(call, many, 40));
    const char *left = keys_of(call, (berth_query){0});
    bool is_deleted = berth_index_delete(call, "b") && berth_index_delete(call, "none");
    return berth_answer_json(
        call,
        "{\"words\":[%s],\"tagged\":[%s],\"near\":[%s],\"whole\":%s,\"missing\":%s,\"no_key\":%s,"
        "\"quota\":%s,\"left\":[%s],\"deleted\":%s,\"then\":[%s]}",
        keys_of(call, (berth_query){.words = "hound FOX"}),
        keys_of(call, (berth_query){.words = "fox", .tags = tags, .limit = 1}),
        keys_of(call, (berth_query){.prefix = "a/", .vector = near, .dimensions = 2, .limit = 1}),
        is_whole ? "true" : "false", is_missing ? "true" : "false", no_key, quota, left,
        is_deleted ? "true" : "false", keys_of(call, (berth_query){0}));
}

static berth_outcome try_schedule(berth_call *call) {
    const char *own = berth_text(call, "own"), *arguments = "{\"key\":\"colour\"}";
    berth_task tidy = {"tidy", "cron", "0 4 * * *", own, arguments, NULL, NULL};
    berth_task again = {"again", "every", "3600", "fixture-c__keep", NULL, "Europe/Berlin", "skip"};
    berth_task other = {.name = "other", .kind = "once", .when = "PT1H", .tool = "read"};
    berth_task invalid = {.name = "other", .kind = "cron", .when = "never", .tool = own, .arguments = arguments};
    berth_task third = {.name = "third", .kind = "every", .when = "60", .tool = own, .arguments = arguments};
    if (!berth_schedule_put(call, &tidy) || !berth_schedule_put(call, &again)) {
        return berth_fail_host(call);
    }
    const char *denied = code_of(call, berth_schedule_put(call, &other));
    const char *wrong = code_of(call, berth_schedule_put(call, &invalid));
    const char *quota = code_of(call, berth_schedule_put(call, &third));
    size_t count;
    const berth_task_state *states = berth_schedule_tasks(call, &count);
    const char *tasks = "";
    for (size_t i = 0; i < count; i++) {
        const berth_task *task = &states[i].task;
        const char *zone = task->zone != NULL ? berth_quote(call, task->zone) : "null";
        tasks = berth_format(call, "%s%s[\"%s\",\"%s\",\"%s\",%s,\"%s\",%s,%s]", tasks, i > 0 ? "," : "",
                             task->name, task->kind, task->when, zone, task->missed, task->arguments,
                             states[i].next != NULL && !states[i].paused ? "true" : "false");
    }
    bool removed = berth_schedule_remove(call, "again");
    bool removed_again = berth_schedule_remove(call, "again") || berth_host_failed(call);
    return berth_answer_json(
        call, "{\"other\":%s,\"invalid\":%s,\"quota\":%s,\"tasks\":[%s],\"removed\":[%s,%s]}", denied, wrong,
        quota, tasks, removed ? "true" : "false", removed_again ? "true" : "false");
}

static berth_outcome try_parts(berth_call *call) {
    plugin_string_t part = borrowed("attack"), texts[] = {borrowed("echo a"), borrowed("fail x"), borrowed("echo b")};
    plugin_list_u8_t inputs[3];
    for (size_t i = 0; i < 3; i++) {
        inputs[i] = (plugin_list_u8_t){texts[i].ptr, texts[i].len};
    }
    plugin_list_list_u8_t list = {inputs, 3};
    berth_host_parts_list_result_list_u8_error_t results;
    berth_host_parts_run(&part, &list, &results);
    const char *said = "";
    for (size_t i = 0; i < results.len; i++) {
        bool failed = results.ptr[i].is_err;
        plugin_string_t code = results.ptr[i].val.err.code;
        plugin_list_u8_t answer = results.ptr[i].val.ok;
        said = berth_format(call, "%s%s\"%.*s\"", said, i > 0 ? "," : "", (int)(failed ? code.len : answer.len),
                            failed ? code.ptr : answer.ptr);
    }
    berth_host_parts_list_result_list_u8_error_free(&results);
    return berth_answer_json(call, "[%s]", said);
}

static berth_outcome try_service(berth_call *call) {
    plugin_string_t name = borrowed("words"), program = borrowed("cat"), lines[] = {borrowed("one "), borrowed("two ")};
    plugin_list_string_t command = {&program, 1};
    berth_host_service_options_t options = {0};
    const char *said = "";
    for (size_t i = 0; i < 2; i++) {
        berth_host_service_own_connection_t held;
        berth_host_service_error_t error;
        if (!berth_host_service_connect(&name, &command, &options, &held, &error)) {
            return berth_fail(call, BERTH_PERMANENT_FAILURE, NULL, "%.*s", (int)error.message.len, error.message.ptr);
        }
        berth_host_service_borrow_connection_t words = berth_host_service_borrow_connection(held);
        plugin_list_u8_t read, line = {lines[i].ptr, lines[i].len};
        uint64_t patience = 20000, written = berth_host_service_method_connection_write(words, &line);
        berth_host_service_method_connection_read(words, &patience, &read);
        said = berth_format(call, "%s%s[%s,%d,\"%.*s\"]", said, i > 0 ? "," : "",
                            berth_host_service_method_connection_is_new(words) ? "true" : "false", (int)written,
                            (int)read.len, read.ptr);
        plugin_list_u8_free(&read);
        berth_host_service_method_connection_keep(words);
        berth_host_service_connection_drop_own(held);
    }
    bool stopped[2] = {false, false};
    for (size_t i = 0; i < 2; i++) {
        berth_host_service_error_t error;
        berth_host_service_stop(&name, &stopped[i], &error);
    }
    return berth_answer_json(call, "{\"said\":[%s],\"stopped\":[%s,%s]}", said, stopped[0] ? "true" : "false",
                             stopped[1] ? "true" : "false");
}

static const berth_argument own[] = {{.name = "own"}, {0}};
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
    {.name = "try_index", .description = "Tries the index.", .call = try_index},
    {.name = "try_schedule", .description = "Tries tasks.", .arguments = own, .call = try_schedule},
    {.name = "try_parts", .description = "Tries a part.", .call = try_parts},
    {.name = "try_service", .description = "Tries a service.", .call = try_service},
    {0},
};
