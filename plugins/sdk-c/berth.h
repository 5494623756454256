// What a plugin in C needs: tools with arguments, answers, failures, the log, progress, settings.
//
// Texts that functions return belong to the call, and end with it. What runs out of memory aborts.
#ifndef BERTH_H
#define BERTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_FORMAT(text, first) __attribute__((format(printf, text, first)))

// The call that runs: its arguments, and the answer that is being made.
typedef struct berth_call berth_call;

// What a tool returns. Only `berth_answer…` and `berth_fail…` make one.
typedef struct {
    bool failed;
} berth_outcome;

// The type of an argument. BERTH_JSON: any other, which `schema` describes.
typedef enum { BERTH_TEXT, BERTH_INTEGER, BERTH_NUMBER, BERTH_BOOLEAN, BERTH_JSON } berth_type;

// What an argument names, if the host has to decide on it.
typedef enum {
    BERTH_NOTHING,
    BERTH_READS_PATH,
    BERTH_WRITES_PATH,
    // The last component itself is changed, for example by renaming it.
    BERTH_CHANGES_NAME,
    BERTH_READS_URL,
    BERTH_WRITES_URL,
    BERTH_COMMAND,
} berth_subject;

typedef struct {
    const char *name;
    berth_type type;
    const char *description;
    // Further members of its JSON Schema, as `"minimum": 1, "maximum": 10`.
    const char *schema;
    // The value of an argument that is left out, as JSON: `10`, `"text"`.
    const char *fallback;
    // Whether it may be left out without a fallback.
    bool optional;
    berth_subject subject;
    // `timeout` (seconds, the time limit), `network` or `text`.
    const char *role;
} berth_argument;

// What a tool promises. The host enforces BERTH_READ_ONLY.
enum {
    BERTH_READ_ONLY = 1,
    BERTH_ADDITIVE = 2,
    BERTH_IDEMPOTENT = 4,
    BERTH_CLOSED_WORLD = 8,
    BERTH_CACHEABLE = 16,
};

typedef struct {
    const char *name;
    const char *title;
    // What models choose the tool by: what it does, what it returns, how it fails.
    const char *description;
    // The last one has no name.
    const berth_argument *arguments;
    // The JSON Schema of what `berth_answer_json` is given, if there is one.
    const char *output_schema;
    unsigned promises;
    berth_outcome (*call)(berth_call *call);
} berth_tool;

// The tools of the plugin, which it defines itself. The last one has no name.
extern const berth_tool berth_tools[];

// Arguments. The host has checked them against the schema. Asking for an argument that the tool
// doesn't have, or for another type than it has, aborts.

// Whether it was given, or has a fallback.
bool berth_has(berth_call *call, const char *name);
// UTF-8 that ends with a zero, and has no other one. NULL: it was left out.
const char *berth_text(berth_call *call, const char *name);
// Zero, or false: it was left out.
int64_t berth_integer(berth_call *call, const char *name);
double berth_number(berth_call *call, const char *name);
bool berth_boolean(berth_call *call, const char *name);
// Its JSON. NULL: it was left out.
const char *berth_json(berth_call *call, const char *name);

// JSON. `json` is a value as text.

// The next item of a list, and NULL after the last one: `while ((item = berth_json_next(call,
// &list)))`. The list is the rest after that.
const char *berth_json_next(berth_call *call, const char **list);
// A field of an object. NULL: there is none.
const char *berth_json_field(berth_call *call, const char *json, const char *name);
// NULL: it isn't a text, or it has a zero inside.
const char *berth_json_text(berth_call *call, const char *json);
// Whether it is such a number; if so, it is written to `value`.
bool berth_json_integer(const char *json, int64_t *value);
bool berth_json_number(const char *json, double *value);
// The JSON of a text, with its quotation marks.
const char *berth_quote(berth_call *call, const char *text);

// Answers. What isn't UTF-8 in a text is replaced by U+FFFD.

berth_outcome berth_answer_text(berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
// A JSON value, for programs; who reads texts alone gets it too. `berth_quote` makes texts in it.
berth_outcome berth_answer_json(berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
// The parts that were added.
berth_outcome berth_answer(berth_call *call);
// What was emitted, and after it the parts that were added.
berth_outcome berth_answer_emitted(berth_call *call);
// Adds a part to an answer or to a failure. `media_type` may be NULL.
void berth_add_text(berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
void berth_add_bytes(berth_call *call, const void *bytes, size_t length, const char *media_type);

// Failures.

typedef enum {
    // It would fail again in the same way.
    BERTH_PERMANENT_FAILURE,
    // The arguments fit the schema and still aren't valid.
    BERTH_INVALID_PARAMETERS,
    BERTH_TYPE_MISMATCH,
    // The caller may try these again.
    BERTH_RATE_LIMITED,
    BERTH_SERVER_ERROR,
    BERTH_NETWORK_ERROR,
    BERTH_TIMEOUT,
} berth_category;

// `code` names the case for programs, as `not-found`, and may be NULL. The message says what was
// wrong with which value; at most 4 KiB of it reach the caller.
berth_outcome berth_fail(berth_call *call, berth_category category, const char *code,
                         const char *format, ...) BERTH_FORMAT(4, 5);
// What `errno` says about `name`, with the code of its kind: `notes.txt: not found`.
berth_outcome berth_fail_errno(berth_call *call, const char *name);
// Before failing: what to try instead, and how long to wait.
void berth_suggest(berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
void berth_retry_after_ms(berth_call *call, uint64_t milliseconds);

// While a call runs.

typedef enum { BERTH_DEBUG, BERTH_INFO, BERTH_WARN, BERTH_ERROR } berth_level;

// Writes into the operator's log.
void berth_log(berth_level level, const char *format, ...) BERTH_FORMAT(2, 3);
// `fraction` is from 0 to 1, or negative if it isn't known.
void berth_progress(double fraction, const char *format, ...) BERTH_FORMAT(2, 3);
// Shows a part of the answer at once. False: the limit is reached, so stop.
bool berth_emit(berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
uint64_t berth_remaining_ms(void);
bool berth_cancelled(void);
// A key of `[plugins.NAME.config]`, as JSON. NULL: it isn't set.
const char *berth_config(berth_call *call, const char *key);

// Data that outlives the call, for `store` in the manifest.

// The bytes of a key, with a zero after them. NULL: there is none, or `berth_host_failed`.
const char *berth_store_get(berth_call *call, const char *key, size_t *length);
// Writes the bytes of a key; NULL deletes it. False: `berth_host_failed`.
bool berth_store_put(berth_call *call, const char *key, const void *bytes, size_t length);
// Whether the last of these functions, or of those below, failed; the code of that (`denied`,
// `limit`, …; NULL: none failed); and the failure of the call with the host's reason.
bool berth_host_failed(berth_call *call);
const char *berth_host_code(berth_call *call);
berth_outcome berth_fail_host(berth_call *call);

// Documents of the plugin's own, and ranked search in them, for `index` in the manifest.

typedef struct {
    // 1 to 512 bytes. A document replaces the one with the same key.
    const char *key;
    // What is searched for words. NULL: nothing.
    const char *text;
    // What a query can ask for exactly. The last one is NULL. NULL: there is none.
    const char *const *tags;
    // `dimensions` numbers, as many in each document with a vector. NULL: it has none.
    const int8_t *vector;
    size_t dimensions;
    // What is kept with it and not searched.
    const void *data;
    size_t length;
} berth_document;

// What to search for. Without words and without a vector, it finds the latest documents.
typedef struct {
    // A hit has one of them. They have no syntax. NULL: none.
    const char *words;
    // A hit has all of them. The last one is NULL. NULL: none.
    const char *const *tags;
    // What the key of a hit begins with. NULL: anything.
    const char *prefix;
    const int8_t *vector;
    size_t dimensions;
    // The number of hits; 10 if it is 0.
    uint32_t limit;
} berth_query;

typedef struct {
    const char *key;
    // Higher is better. Only hits of one query can be compared.
    double score;
} berth_hit;

// Writes documents, all of them or none: at most 1,000. False: `berth_host_failed`.
bool berth_index_put(berth_call *call, const berth_document *documents, size_t count);
// Deletes the document with this key, if there is one. False: `berth_host_failed`.
bool berth_index_delete(berth_call *call, const char *key);
// NULL: there is none, or `berth_host_failed`.
const berth_document *berth_index_get(berth_call *call, const char *key);
// The best documents, the best first. NULL: `berth_host_failed`.
const berth_hit *berth_index_search(berth_call *call, const berth_query *query, size_t *count);

// Calls of the plugin's own tools at a later time, for `schedule` in the manifest.

typedef struct {
    // A task replaces the one with the same name.
    const char *name;
    // `once` (`when` is a time of RFC 3339 or a duration such as `PT15M`), `every` (seconds) or
    // `cron`.
    const char *kind, *when;
    // The full name of one of the plugin's own tools, and its arguments as JSON. NULL: `{}`.
    const char *tool, *arguments;
    // A name of the time zone database. NULL: the machine's zone, by the name that it has when
    // the task is made.
    const char *zone;
    // What becomes of times that passed while nothing ran: `once` (also if it is NULL), `all`,
    // `skip`.
    const char *missed;
} berth_task;

typedef struct {
    berth_task task;
    // When it runs next, in RFC 3339. NULL: never again.
    const char *next;
    bool paused;
} berth_task_state;

// Keeps a task. False: `berth_host_failed`.
bool berth_schedule_put(berth_call *call, const berth_task *task);
// Removes a task and its runs. False: there is none with this name, or `berth_host_failed`.
bool berth_schedule_remove(berth_call *call, const char *name);
// The plugin's tasks for the principal of the call, sorted by name. NULL: `berth_host_failed`.
const berth_task_state *berth_schedule_tasks(berth_call *call, size_t *count);

// Memory and files.

// Memory that ends with the call.
void *berth_alloc(berth_call *call, size_t size);
// A text that ends with the call.
const char *berth_format(berth_call *call, const char *format, ...) BERTH_FORMAT(2, 3);
// The content of a file of at most `limit` bytes, with a zero after it. NULL: `errno` says why
// (EFBIG: it is longer).
char *berth_read_file(berth_call *call, const char *path, size_t limit, size_t *length);
bool berth_is_utf8(const char *bytes, size_t length);

#ifdef __cplusplus
}
#endif

#endif
