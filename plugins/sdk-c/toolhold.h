// What a plugin in C needs: tools with arguments, answers, failures, the log, progress, settings.
//
// Texts that functions return belong to the call, and end with it. What runs out of memory aborts.
#ifndef TOOLHOLD_H
#define TOOLHOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOOLHOLD_FORMAT(text, first) __attribute__((format(printf, text, first)))

// The call that runs: its arguments, and the answer that is being made.
typedef struct toolhold_call toolhold_call;

// What a tool returns. Only `toolhold_answer…` and `toolhold_fail…` make one.
typedef struct {
    bool failed;
} toolhold_outcome;

// The type of an argument. TOOLHOLD_JSON: any other, which `schema` describes.
typedef enum { TOOLHOLD_TEXT, TOOLHOLD_INTEGER, TOOLHOLD_NUMBER, TOOLHOLD_BOOLEAN, TOOLHOLD_JSON } toolhold_type;

// What an argument names, if the host has to decide on it.
typedef enum {
    TOOLHOLD_NOTHING,
    TOOLHOLD_READS_PATH,
    TOOLHOLD_WRITES_PATH,
    // The last component itself is changed, for example by renaming it.
    TOOLHOLD_CHANGES_NAME,
    TOOLHOLD_READS_URL,
    TOOLHOLD_WRITES_URL,
    TOOLHOLD_COMMAND,
} toolhold_subject;

typedef struct {
    const char *name;
    toolhold_type type;
    const char *description;
    // Further members of its JSON Schema, as `"minimum": 1, "maximum": 10`.
    const char *schema;
    // The value of an argument that is left out, as JSON: `10`, `"text"`.
    const char *fallback;
    // Whether it may be left out without a fallback.
    bool optional;
    toolhold_subject subject;
    // `timeout` (seconds, the time limit), `network` or `text`.
    const char *role;
} toolhold_argument;

// What a tool promises. The host enforces TOOLHOLD_READ_ONLY.
enum {
    TOOLHOLD_READ_ONLY = 1,
    TOOLHOLD_ADDITIVE = 2,
    TOOLHOLD_IDEMPOTENT = 4,
    TOOLHOLD_CLOSED_WORLD = 8,
    TOOLHOLD_CACHEABLE = 16,
};

typedef struct {
    const char *name;
    const char *title;
    // What models choose the tool by: what it does, what it returns, how it fails.
    const char *description;
    // The last one has no name.
    const toolhold_argument *arguments;
    // The JSON Schema of what `toolhold_answer_json` is given, if there is one.
    const char *output_schema;
    unsigned promises;
    toolhold_outcome (*call)(toolhold_call *call);
} toolhold_tool;

// The tools of the plugin, which it defines itself. The last one has no name.
extern const toolhold_tool toolhold_tools[];

// Arguments. The host has checked them against the schema. Asking for an argument that the tool
// doesn't have, or for another type than it has, aborts.

// Whether it was given, or has a fallback.
bool toolhold_has(toolhold_call *call, const char *name);
// UTF-8 that ends with a zero, and has no other one. NULL: it was left out.
const char *toolhold_text(toolhold_call *call, const char *name);
// Zero, or false: it was left out.
int64_t toolhold_integer(toolhold_call *call, const char *name);
double toolhold_number(toolhold_call *call, const char *name);
bool toolhold_boolean(toolhold_call *call, const char *name);
// Its JSON. NULL: it was left out.
const char *toolhold_json(toolhold_call *call, const char *name);

// JSON. `json` is a value as text.

// The next item of a list, and NULL after the last one: `while ((item = toolhold_json_next(call,
// &list)))`. The list is the rest after that.
const char *toolhold_json_next(toolhold_call *call, const char **list);
// A field of an object. NULL: there is none.
const char *toolhold_json_field(toolhold_call *call, const char *json, const char *name);
// NULL: it isn't a text, or it has a zero inside.
const char *toolhold_json_text(toolhold_call *call, const char *json);
// Whether it is such a number; if so, it is written to `value`.
bool toolhold_json_integer(const char *json, int64_t *value);
bool toolhold_json_number(const char *json, double *value);
// The JSON of a text, with its quotation marks.
const char *toolhold_quote(toolhold_call *call, const char *text);

// Answers. What isn't UTF-8 in a text is replaced by U+FFFD.

toolhold_outcome toolhold_answer_text(toolhold_call *call, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
// A JSON value, for programs; who reads texts alone gets it too. `toolhold_quote` makes texts in it.
toolhold_outcome toolhold_answer_json(toolhold_call *call, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
// The parts that were added.
toolhold_outcome toolhold_answer(toolhold_call *call);
// What was emitted, and after it the parts that were added.
toolhold_outcome toolhold_answer_emitted(toolhold_call *call);
// Adds a part to an answer or to a failure. `media_type` may be NULL.
void toolhold_add_text(toolhold_call *call, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
void toolhold_add_bytes(toolhold_call *call, const void *bytes, size_t length, const char *media_type);

// Failures.

typedef enum {
    // It would fail again in the same way.
    TOOLHOLD_PERMANENT_FAILURE,
    // The arguments fit the schema and still aren't valid.
    TOOLHOLD_INVALID_PARAMETERS,
    TOOLHOLD_TYPE_MISMATCH,
    // The caller may try these again.
    TOOLHOLD_RATE_LIMITED,
    TOOLHOLD_SERVER_ERROR,
    TOOLHOLD_NETWORK_ERROR,
    TOOLHOLD_TIMEOUT,
} toolhold_category;

// `code` names the case for programs, as `not-found`, and may be NULL. The message says what was
// wrong with which value; at most 4 KiB of it reach the caller.
toolhold_outcome toolhold_fail(toolhold_call *call, toolhold_category category, const char *code,
                         const char *format, ...) TOOLHOLD_FORMAT(4, 5);
// What `errno` says about `name`, with the code of its kind: `notes.txt: not found`.
toolhold_outcome toolhold_fail_errno(toolhold_call *call, const char *name);
// Before failing: what to try instead, and how long to wait.
void toolhold_suggest(toolhold_call *call, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
void toolhold_retry_after_ms(toolhold_call *call, uint64_t milliseconds);

// While a call runs.

typedef enum { TOOLHOLD_DEBUG, TOOLHOLD_INFO, TOOLHOLD_WARN, TOOLHOLD_ERROR } toolhold_level;

// Writes into the operator's log.
void toolhold_log(toolhold_level level, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
// `fraction` is from 0 to 1, or negative if it isn't known.
void toolhold_progress(double fraction, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
// Shows a part of the answer at once. False: the limit is reached, so stop.
bool toolhold_emit(toolhold_call *call, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
uint64_t toolhold_remaining_ms(void);
bool toolhold_cancelled(void);
// A key of `[plugins.NAME.config]`, as JSON. NULL: it isn't set.
const char *toolhold_config(toolhold_call *call, const char *key);

// Data that outlives the call, for `store` in the manifest.

// The bytes of a key, with a zero after them. NULL: there is none, or `toolhold_host_failed`.
const char *toolhold_store_get(toolhold_call *call, const char *key, size_t *length);
// Writes the bytes of a key; NULL deletes it. False: `toolhold_host_failed`.
bool toolhold_store_put(toolhold_call *call, const char *key, const void *bytes, size_t length);
// Whether the last of these functions, or of those below, failed; the code of that (`denied`,
// `limit`, …; NULL: none failed); and the failure of the call with the host's reason.
bool toolhold_host_failed(toolhold_call *call);
const char *toolhold_host_code(toolhold_call *call);
toolhold_outcome toolhold_fail_host(toolhold_call *call);

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
} toolhold_document;

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
} toolhold_query;

typedef struct {
    const char *key;
    // Higher is better. Only hits of one query can be compared.
    double score;
} toolhold_hit;

// Writes documents, all of them or none: at most 1,000. False: `toolhold_host_failed`.
bool toolhold_index_put(toolhold_call *call, const toolhold_document *documents, size_t count);
// Deletes the document with this key, if there is one. False: `toolhold_host_failed`.
bool toolhold_index_delete(toolhold_call *call, const char *key);
// NULL: there is none, or `toolhold_host_failed`.
const toolhold_document *toolhold_index_get(toolhold_call *call, const char *key);
// The best documents, the best first. NULL: `toolhold_host_failed`.
const toolhold_hit *toolhold_index_search(toolhold_call *call, const toolhold_query *query, size_t *count);

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
} toolhold_task;

typedef struct {
    toolhold_task task;
    // When it runs next, in RFC 3339. NULL: never again.
    const char *next;
    bool paused;
} toolhold_task_state;

// Keeps a task. False: `toolhold_host_failed`.
bool toolhold_schedule_put(toolhold_call *call, const toolhold_task *task);
// Removes a task and its runs. False: there is none with this name, or `toolhold_host_failed`.
bool toolhold_schedule_remove(toolhold_call *call, const char *name);
// The plugin's tasks for the principal of the call, sorted by name. NULL: `toolhold_host_failed`.
const toolhold_task_state *toolhold_schedule_tasks(toolhold_call *call, size_t *count);

// Memory and files.

// Memory that ends with the call.
void *toolhold_alloc(toolhold_call *call, size_t size);
// A text that ends with the call.
const char *toolhold_format(toolhold_call *call, const char *format, ...) TOOLHOLD_FORMAT(2, 3);
// The content of a file of at most `limit` bytes, with a zero after it. NULL: `errno` says why
// (EFBIG: it is longer).
char *toolhold_read_file(toolhold_call *call, const char *path, size_t limit, size_t *length);
bool toolhold_is_utf8(const char *bytes, size_t length);

#ifdef __cplusplus
}
#endif

#endif
