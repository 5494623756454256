// What the files of the SDK have in common. Plugins don't need it.
#ifndef TOOLHOLD_INTERNAL_H
#define TOOLHOLD_INTERNAL_H

#include <stdarg.h>

#include "toolhold.h"

// A text of known length, which may have zeros in it.
typedef struct {
    char *bytes;
    size_t length, capacity;
} toolhold_buffer;

// A part of an answer. `is_text`: else bytes.
typedef struct {
    bool is_text;
    const char *bytes;
    size_t length;
    const char *media_type;
} toolhold_part;

struct toolhold_call {
    const toolhold_tool *tool;
    // The value of each argument of the tool as JSON, in their order. NULL: it was left out.
    const char **values;
    toolhold_part *parts;
    size_t part_count;
    bool after_emitted;
    const char *structured;
    toolhold_category category;
    const char *code, *message, *suggestion;
    bool has_retry;
    uint64_t retry_after_ms;
    // Why the last function of the host failed.
    const char *host_code, *host_message;
    // Everything that ends with the call.
    struct toolhold_block *blocks;
};

// Runs a tool with its arguments, a JSON object that ends with a zero.
toolhold_outcome toolhold_run(toolhold_call *call, const char *tool, const char *arguments);
void toolhold_end(toolhold_call *call);
// The input schema of a tool, to be freed.
char *toolhold_input_schema(const toolhold_tool *tool);
const char *toolhold_subject_kind(toolhold_subject subject);
bool toolhold_subject_writes(toolhold_subject subject);
const char *toolhold_vformat(toolhold_call *call, const char *format, va_list values);
// UTF-8 of at most `limit` bytes, cut between characters.
const char *toolhold_cleaned(toolhold_call *call, const char *text, size_t *length, size_t limit);

// What the host does, or in unit tests a stand-in. Texts are UTF-8.
void toolhold_host_write_log(toolhold_level level, const char *text, size_t length);
void toolhold_host_report(double fraction, const char *text, size_t length);
bool toolhold_host_emit(const char *text, size_t length);
const char *toolhold_host_config(toolhold_call *call, const char *key);

#endif
