// What the files of the SDK have in common. Plugins don't need it.
#ifndef BERTH_INTERNAL_H
#define BERTH_INTERNAL_H

#include <stdarg.h>

#include "berth.h"

// A text of known length, which may have zeros in it.
typedef struct {
    char *bytes;
    size_t length, capacity;
} berth_buffer;

// A part of an answer. `is_text`: else bytes.
typedef struct {
    bool is_text;
    const char *bytes;
    size_t length;
    const char *media_type;
} berth_part;

struct berth_call {
    const berth_tool *tool;
    // The value of each argument of the tool as JSON, in their order. NULL: it was left out.
    const char **values;
    berth_part *parts;
    size_t part_count;
    bool after_emitted;
    const char *structured;
    berth_category category;
    const char *code, *message, *suggestion;
    bool has_retry;
    uint64_t retry_after_ms;
    // Why the last function of the host failed.
    const char *host_code, *host_message;
    // Everything that ends with the call.
    struct berth_block *blocks;
};

// Runs a tool with its arguments, a JSON object that ends with a zero.
berth_outcome berth_run(berth_call *call, const char *tool, const char *arguments);
void berth_end(berth_call *call);
// The input schema of a tool, to be freed.
char *berth_input_schema(const berth_tool *tool);
const char *berth_subject_kind(berth_subject subject);
bool berth_subject_writes(berth_subject subject);
const char *berth_vformat(berth_call *call, const char *format, va_list values);
// UTF-8 of at most `limit` bytes, cut between characters.
const char *berth_cleaned(berth_call *call, const char *text, size_t *length, size_t limit);

// What the host does, or in unit tests a stand-in. Texts are UTF-8.
void berth_host_write_log(berth_level level, const char *text, size_t length);
void berth_host_report(double fraction, const char *text, size_t length);
bool berth_host_emit(const char *text, size_t length);
const char *berth_host_config(berth_call *call, const char *key);

#endif
