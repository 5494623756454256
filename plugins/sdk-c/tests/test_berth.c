// Tests of the SDK, as plugins see it. In `plugins/sdk-c`:
// `cc -I. -o /tmp/test_berth *.c tests/test_berth.c && /tmp/test_berth`

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

static berth_outcome say(berth_call *call) {
    const char *some = berth_json(call, "some");
    berth_log(BERTH_INFO, "n is %lld", (long long)berth_integer(call, "n"));
    berth_emit(call, "first");
    return berth_answer_json(call, "[%s,%lld,%g,%s,%s]", berth_quote(call, berth_text(call, "text")),
                             (long long)berth_integer(call, "n"), berth_number(call, "x"),
                             berth_boolean(call, "b") ? "true" : "false", some != NULL ? some : "null");
}

static berth_outcome fail(berth_call *call) {
    errno = ENOENT;
    return berth_fail_errno(call, "a.txt");
}

static const berth_argument arguments[] = {
    {.name = "text", .description = "A \"text\".", .subject = BERTH_WRITES_PATH},
    {.name = "n", .type = BERTH_INTEGER, .fallback = "7", .schema = "\"minimum\":1"},
    {.name = "x", .type = BERTH_NUMBER, .optional = true},
    {.name = "b", .type = BERTH_BOOLEAN, .optional = true},
    {.name = "some", .type = BERTH_JSON, .optional = true, .schema = "\"type\":\"array\""},
    {0},
};

const berth_tool berth_tools[] = {
    {.name = "say", .description = "Says its arguments.", .arguments = arguments, .call = say},
    {.name = "fail", .description = "Fails.", .call = fail},
    {0},
};

static void schemas_come_from_the_arguments(void) {
    char *schema = berth_input_schema(&berth_tools[0]);
    EQUAL(schema,
          "{\"type\":\"object\",\"properties\":{"
          "\"text\":{\"type\":\"string\",\"description\":\"A \\\"text\\\".\"},"
          "\"n\":{\"type\":\"integer\",\"default\":7,\"minimum\":1},"
          "\"x\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"some\":{\"type\":\"array\"}},"
          "\"required\":[\"text\"],\"additionalProperties\":false}");
    free(schema);
    schema = berth_input_schema(&berth_tools[1]);
    EQUAL(schema, "{\"type\":\"object\",\"properties\":{},\"required\":[],\"additionalProperties\":false}");
    free(schema);
}

static void arguments_are_read(void) {
    EQUAL(berth_test("say", "{\"text\":\"a\"}").structured, "[\"a\",7,0,false,null]");
    EQUAL(berth_test_log(), "info: n is 7\n");
    EQUAL(berth_test_emitted(), "first\n");
    berth_tested all = berth_test(
        "say", " { \"text\" : \"\\u00e4\\n\\ud83d\\ude00\\ud800\\\"\" , \"n\":-9223372036854775808, \"x\" : -1.5e2 ,"
               "\"b\":true , \"some\" : [ {\"]\": \"}\\\"\"} , [] ] } ");
    EQUAL(all.structured, "[\"ä\\u000a😀\xEF\xBF\xBD\\\"\",-9223372036854775808,-150,true,[ {\"]\": \"}\\\"\"} , [] ]]");
    EQUAL(all.text, all.structured);
    EQUAL(berth_test("say", "{\"text\":\"a\",\"n\":2.0e0,\"x\":null}").structured, "[\"a\",2,0,false,null]");
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
        berth_tested refused = berth_test("say", cases[i][0]);
        CHECK(refused.failed);
        EQUAL(refused.message, cases[i][1]);
    }
    EQUAL(berth_test("no", "{}").message, "the plugin has no tool no");
}

static void errors_of_the_system_have_the_code_of_their_kind(void) {
    berth_tested failed = berth_test("fail", "{}");
    CHECK(failed.failed && failed.category == BERTH_PERMANENT_FAILURE);
    EQUAL(failed.code, "not-found");
    EQUAL(failed.message, "a.txt: not found");
}

static void lists_and_objects_are_read(void) {
    berth_call call = {0};
    const char *list = " [ 1 , \"a,]\" , {\"b\":[2]} ] ";
    EQUAL(berth_json_next(&call, &list), "1");
    EQUAL(berth_json_text(&call, berth_json_next(&call, &list)), "a,]");
    EQUAL(berth_json_field(&call, berth_json_next(&call, &list), "b"), "[2]");
    CHECK(berth_json_next(&call, &list) == NULL);
    CHECK(berth_json_next(&call, &list) == NULL);
    const char *empty = "[]", *none = "7";
    CHECK(berth_json_next(&call, &empty) == NULL && berth_json_next(&call, &none) == NULL);
    CHECK(berth_json_field(&call, "{}", "a") == NULL);
    // What ends too early is read to its end, and not beyond.
    static const char *const cut[] = {"[", "[1", "{\"a", "{\"a\"", "{\"a\":", "[\"a\\", "\"\\u12", "\"a", ""};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        char *exact = malloc(strlen(cut[i]) + 1);
        CHECK(exact != NULL);
        strcpy(exact, cut[i]);
        const char *rest = exact;
        while (berth_json_next(&call, &rest) != NULL) {
        }
        berth_json_field(&call, exact, "a");
        CHECK(berth_json_text(&call, exact) == NULL);
        free(exact);
    }
    berth_end(&call);
}

static void texts_are_made_utf8(void) {
    berth_call call = {0};
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
        EQUAL(berth_format(&call, "%s", cases[i][0]), cases[i][1]);
    }
    size_t length = strlen("äöü");
    const char *cut = berth_cleaned(&call, "äöü", &length, 5);
    CHECK(length == 4 && memcmp(cut, "äö", 4) == 0);
    berth_end(&call);
}

static void files_are_read_up_to_the_limit(void) {
    berth_call call = {0};
    size_t length = 0;
    char name[] = "/tmp/berth-test-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0);
    FILE *stream = fopen(name, "w");
    CHECK(stream != NULL);
    for (int i = 0; i < 100000; i++) {
        fputc('x', stream);
    }
    fclose(stream);
    CHECK(berth_read_file(&call, name, 100000, &length) != NULL && length == 100000);
    CHECK(berth_read_file(&call, name, 99999, &length) == NULL && errno == EFBIG);
    CHECK(berth_read_file(&call, name, 0, &length) == NULL && errno == EFBIG);
    remove(name);
    CHECK(berth_read_file(&call, name, 100000, &length) == NULL && errno == ENOENT);
    CHECK(berth_read_file(&call, "/", 100, &length) == NULL && errno == EISDIR);
    berth_end(&call);
}

static void store_and_settings_have_stand_ins(void) {
    berth_call call = {0};
    size_t length = 0;
    CHECK(berth_store_get(&call, "a", &length) == NULL && !berth_host_failed(&call));
    CHECK(berth_store_put(&call, "a", "one", 3) && berth_store_put(&call, "b", "", 0));
    CHECK(berth_store_put(&call, "a", "four", 4));
    EQUAL(berth_store_get(&call, "a", &length), "four");
    CHECK(length == 4);
    CHECK(berth_store_put(&call, "a", NULL, 0) && berth_store_get(&call, "a", &length) == NULL);
    EQUAL(berth_store_get(&call, "b", &length), "");
    CHECK(berth_store_put(&call, "b", NULL, 0));
    berth_test_config("{\"colour\":\"red\"}");
    EQUAL(berth_config(&call, "colour"), "\"red\"");
    CHECK(berth_config(&call, "size") == NULL);
    berth_end(&call);
}

static void documents_and_tasks_have_stand_ins(void) {
    berth_call call = {0};
    const char *const tags[] = {"animal", NULL};
    const int8_t vector[] = {1, -128};
    const berth_document documents[] = {
        {.key = "a/1", .text = "A quick fox", .tags = tags, .vector = vector, .dimensions = 2},
        {.key = "a/2", .text = "fox, fox and hound", .data = "x", .length = 1},
        {.key = "b"},
    };
    CHECK(berth_index_put(&call, documents, 3));
    size_t count;
    const berth_hit *hits = berth_index_search(&call, &(berth_query){.words = "hound FOX"}, &count);
    CHECK(count == 2);
    EQUAL(hits[0].key, "a/2");
    hits = berth_index_search(&call, &(berth_query){.words = "fox", .tags = tags}, &count);
    CHECK(count == 1);
    EQUAL(hits[0].key, "a/1");
    hits = berth_index_search(&call, &(berth_query){.prefix = "a/", .limit = 1}, &count);
    CHECK(count == 1);
    EQUAL(hits[0].key, "a/2");
    const berth_document *found = berth_index_get(&call, "a/1");
    EQUAL(found->tags[0], "animal");
    CHECK(found->vector[1] == -128);
    CHECK(berth_index_delete(&call, "a/1") && berth_index_get(&call, "a/1") == NULL);
    CHECK(!berth_host_failed(&call));

    CHECK(berth_schedule_put(&call, &(berth_task){"tidy", "cron", "0 4 * * *", "notes__tidy", "{\"days\":30}", NULL, NULL}));
    CHECK(berth_schedule_put(&call, &(berth_task){.name = "ask", .kind = "every", .when = "60", .tool = "notes__ask"}));
    const berth_task_state *states = berth_schedule_tasks(&call, &count);
    CHECK(count == 2);
    EQUAL(states[0].task.name, "ask");
    EQUAL(states[0].task.arguments, "{}");
    EQUAL(states[1].task.missed, "once");
    CHECK(berth_schedule_remove(&call, "ask") && !berth_schedule_remove(&call, "ask"));
    berth_end(&call);
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
