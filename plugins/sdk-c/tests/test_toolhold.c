// Tests of the SDK, as plugins see it. In `plugins/sdk-c`:
// `cc -I. -o /tmp/test_toolhold *.c tests/test_toolhold.c && /tmp/test_toolhold`

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "testing.h"

// An assertion that no option leaves out.
#define CHECK(holds)                                                  \
    do {                                                              \
        if (!(holds)) {                                               \
            fprintf(stderr, "line %d: %s doesn't hold\n", __LINE__, #holds); \
            exit(1);                                                  \
        }                                                             \
    } while (false)

static void check_equal(int line, const char *found, const char *expected) {
    if (found == NULL || strcmp(found, expected) != 0) {
        fprintf(stderr, "line %d: found    %s\nexpected %s\n", line, found != NULL ? found : "NULL", expected);
        exit(1);
    }
}
#define EQUAL(found, expected) check_equal(__LINE__, found, expected)

static toolhold_outcome say(toolhold_call *call) {
    const char *some = toolhold_json(call, "some");
    toolhold_log(TOOLHOLD_INFO, "n is %lld", (long long)toolhold_integer(call, "n"));
    toolhold_emit(call, "first");
    return toolhold_answer_json(call, "[%s,%lld,%g,%s,%s]", toolhold_quote(call, toolhold_text(call, "text")),
                             (long long)toolhold_integer(call, "n"), toolhold_number(call, "x"),
                             toolhold_boolean(call, "b") ? "true" : "false", some != NULL ? some : "null");
}

static toolhold_outcome fail(toolhold_call *call) {
    errno = ENOENT;
    return toolhold_fail_errno(call, "a.txt");
}

static const toolhold_argument arguments[] = {
    {.name = "text", .description = "A \"text\".", .subject = TOOLHOLD_WRITES_PATH},
    {.name = "n", .type = TOOLHOLD_INTEGER, .fallback = "7", .schema = "\"minimum\":1"},
    {.name = "x", .type = TOOLHOLD_NUMBER, .optional = true},
    {.name = "b", .type = TOOLHOLD_BOOLEAN, .optional = true},
    {.name = "some", .type = TOOLHOLD_JSON, .optional = true, .schema = "\"type\":\"array\""},
    {0},
};

const toolhold_tool toolhold_tools[] = {
    {.name = "say", .description = "Says its arguments.", .arguments = arguments, .call = say},
    {.name = "fail", .description = "Fails.", .call = fail},
    {0},
};

static void schemas_come_from_the_arguments(void) {
    char *schema = toolhold_input_schema(&toolhold_tools[0]);
    EQUAL(schema,
          "{\"type\":\"object\",\"properties\":{"
          "\"text\":{\"type\":\"string\",\"description\":\"A \\\"text\\\".\"},"
          "\"n\":{\"type\":\"integer\",\"default\":7,\"minimum\":1},"
          "\"x\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"some\":{\"type\":\"array\"}},"
          "\"required\":[\"text\"],\"additionalProperties\":false}");
    free(schema);
    schema = toolhold_input_schema(&toolhold_tools[1]);
    EQUAL(schema, "{\"type\":\"object\",\"properties\":{},\"required\":[],\"additionalProperties\":false}");
    free(schema);
}

static void arguments_are_read(void) {
    EQUAL(toolhold_test("say", "{\"text\":\"a\"}").structured, "[\"a\",7,0,false,null]");
    EQUAL(toolhold_test_log(), "info: n is 7\n");
    EQUAL(toolhold_test_emitted(), "first\n");
    toolhold_tested all = toolhold_test(
        "say", " { \"text\" : \"\\u00e4\\n\\ud83d\\ude00\\ud800\\\"\" , \"n\":-9223372036854775808, \"x\" : -1.5e2 ,"
               "\"b\":true , \"some\" : [ {\"]\": \"}\\\"\"} , [] ] } ");
    EQUAL(all.structured, "[\"ä\\u000a😀\xEF\xBF\xBD\\\"\",-9223372036854775808,-150,true,[ {\"]\": \"}\\\"\"} , [] ]]");
    EQUAL(all.text, all.structured);
    EQUAL(toolhold_test("say", "{\"text\":\"a\",\"n\":2.0e0,\"x\":null}").structured, "[\"a\",2,0,false,null]");
}

static void wrong_arguments_are_named(void) {
    static const char *const cases[][2] = {
        {"{}", "text is missing"},
        {"{\"text\":1}", "text has to be a text without zeros"},
        {"{\"text\":\"a\\u0000b\"}", "text has to be a text without zeros"},
        {"{\"text\":\"a\",\"n\":1.5}", "n has to be an integer of 64 bits"},
        {"{\"text\":\"a\",\"n\":9223372036854775808}", "n has to be an integer of 64 bits"},
        {"{\"text\":\"a\",\"n\":1e19}", "n has to be an integer of 64 bits"},
        {"{\"text\":\"a\",\"x\":\"1\"}", "x has to be a number"},
        {"{\"text\":\"a\",\"b\":1}", "b has to be true or false"},
        {"{\"text\":\"a\",\"pth\":1}", "the tool has no argument pth"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        toolhold_tested refused = toolhold_test("say", cases[i][0]);
        CHECK(refused.failed);
        EQUAL(refused.message, cases[i][1]);
    }
    EQUAL(toolhold_test("no", "{}").message, "the plugin has no tool no");
}

static void errors_of_the_system_have_the_code_of_their_kind(void) {
    toolhold_tested failed = toolhold_test("fail", "{}");
    CHECK(failed.failed && failed.category == TOOLHOLD_PERMANENT_FAILURE);
    EQUAL(failed.code, "not-found");
    EQUAL(failed.message, "a.txt: not found");
}

static void lists_and_objects_are_read(void) {
    toolhold_call call = {0};
    const char *list = " [ 1 , \"a,]\" , {\"b\":[2]} ] ";
    EQUAL(toolhold_json_next(&call, &list), "1");
    EQUAL(toolhold_json_text(&call, toolhold_json_next(&call, &list)), "a,]");
    EQUAL(toolhold_json_field(&call, toolhold_json_next(&call, &list), "b"), "[2]");
    CHECK(toolhold_json_next(&call, &list) == NULL);
    CHECK(toolhold_json_next(&call, &list) == NULL);
    const char *empty = "[]", *none = "7";
    CHECK(toolhold_json_next(&call, &empty) == NULL && toolhold_json_next(&call, &none) == NULL);
    CHECK(toolhold_json_field(&call, "{}", "a") == NULL);
    // What ends too early is read to its end, and not beyond.
    static const char *const cut[] = {"[", "[1", "{\"a", "{\"a\"", "{\"a\":", "[\"a\\", "\"\\u12", "\"a", ""};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        char *exact = malloc(strlen(cut[i]) + 1);
        CHECK(exact != NULL);
        strcpy(exact, cut[i]);
        const char *rest = exact;
        while (toolhold_json_next(&call, &rest) != NULL) {
        }
        toolhold_json_field(&call, exact, "a");
        CHECK(toolhold_json_text(&call, exact) == NULL);
        free(exact);
    }
    toolhold_end(&call);
}

static void texts_are_made_utf8(void) {
    toolhold_call call = {0};
    static const char *const cases[][2] = {
        {"ä€😀", "ä€😀"},
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"\xC3", "\xEF\xBF\xBD"},
        // Overlong, a surrogate, and beyond the last character.
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EQUAL(toolhold_format(&call, "%s", cases[i][0]), cases[i][1]);
    }
    size_t length = strlen("äöü");
    const char *cut = toolhold_cleaned(&call, "äöü", &length, 5);
    CHECK(length == 4 && memcmp(cut, "äö", 4) == 0);
    toolhold_end(&call);
}

static void files_are_read_up_to_the_limit(void) {
    toolhold_call call = {0};
    size_t length = 0;
    char name[] = "/tmp/toolhold-test-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0);
    FILE *stream = fopen(name, "w");
    CHECK(stream != NULL);
    for (int i = 0; i < 100000; i++) {
        fputc('x', stream);
    }
    fclose(stream);
    CHECK(toolhold_read_file(&call, name, 100000, &length) != NULL && length == 100000);
    CHECK(toolhold_read_file(&call, name, 99999, &length) == NULL && errno == EFBIG);
    CHECK(toolhold_read_file(&call, name, 0, &length) == NULL && errno == EFBIG);
    remove(name);
    CHECK(toolhold_read_file(&call, name, 100000, &length) == NULL && errno == ENOENT);
    CHECK(toolhold_read_file(&call, "/", 100, &length) == NULL && errno == EISDIR);
    toolhold_end(&call);
}

static void store_and_settings_have_stand_ins(void) {
    toolhold_call call = {0};
    size_t length = 0;
    CHECK(toolhold_store_get(&call, "a", &length) == NULL && !toolhold_host_failed(&call));
    CHECK(toolhold_store_put(&call, "a", "one", 3) && toolhold_store_put(&call, "b", "", 0));
    CHECK(toolhold_store_put(&call, "a", "four", 4));
    EQUAL(toolhold_store_get(&call, "a", &length), "four");
    CHECK(length == 4);
    CHECK(toolhold_store_put(&call, "a", NULL, 0) && toolhold_store_get(&call, "a", &length) == NULL);
    EQUAL(toolhold_store_get(&call, "b", &length), "");
    CHECK(toolhold_store_put(&call, "b", NULL, 0));
    toolhold_test_config("{\"colour\":\"red\"}");
    EQUAL(toolhold_config(&call, "colour"), "\"red\"");
    CHECK(toolhold_config(&call, "size") == NULL);
    toolhold_end(&call);
}

static void documents_and_tasks_have_stand_ins(void) {
    toolhold_call call = {0};
    const char *const tags[] = {"animal", NULL};
    const int8_t vector[] = {1, -128};
    const toolhold_document documents[] = {
        {.key = "a/1", .text = "A quick fox", .tags = tags, .vector = vector, .dimensions = 2},
        {.key = "a/2", .text = "fox, fox and hound", .data = "x", .length = 1},
        {.key = "b"},
    };
    CHECK(toolhold_index_put(&call, documents, 3));
    size_t count;
    const toolhold_hit *hits = toolhold_index_search(&call, &(toolhold_query){.words = "hound FOX"}, &count);
    CHECK(count == 2);
    EQUAL(hits[0].key, "a/2");
    hits = toolhold_index_search(&call, &(toolhold_query){.words = "fox", .tags = tags}, &count);
    CHECK(count == 1);
    EQUAL(hits[0].key, "a/1");
    hits = toolhold_index_search(&call, &(toolhold_query){.prefix = "a/", .limit = 1}, &count);
    CHECK(count == 1);
    EQUAL(hits[0].key, "a/2");
    const toolhold_document *found = toolhold_index_get(&call, "a/1");
    EQUAL(found->tags[0], "animal");
    CHECK(found->vector[1] == -128);
    CHECK(toolhold_index_delete(&call, "a/1") && toolhold_index_get(&call, "a/1") == NULL);
    CHECK(!toolhold_host_failed(&call));

    CHECK(toolhold_schedule_put(&call, &(toolhold_task){"tidy", "cron", "0 4 * * *", "notes__tidy", "{\"days\":30}", NULL, NULL}));
    CHECK(toolhold_schedule_put(&call, &(toolhold_task){.name = "ask", .kind = "every", .when = "60", .tool = "notes__ask"}));
    const toolhold_task_state *states = toolhold_schedule_tasks(&call, &count);
    CHECK(count == 2);
    EQUAL(states[0].task.name, "ask");
    EQUAL(states[0].task.arguments, "{}");
    EQUAL(states[1].task.missed, "once");
    CHECK(toolhold_schedule_remove(&call, "ask") && !toolhold_schedule_remove(&call, "ask"));
    toolhold_end(&call);
}

int main(void) {
    schemas_come_from_the_arguments();
    arguments_are_read();
    wrong_arguments_are_named();
    errors_of_the_system_have_the_code_of_their_kind();
    lists_and_objects_are_read();
    texts_are_made_utf8();
    files_are_read_up_to_the_limit();
    store_and_settings_have_stand_ins();
    documents_and_tasks_have_stand_ins();
    return 0;
}
