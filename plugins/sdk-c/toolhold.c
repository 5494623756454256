// Arguments, answers, failures, memory and files.

#include "toolhold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct toolhold_block {
    struct toolhold_block *next;
    // What comes after it is aligned for everything.
    max_align_t bytes[];
};

static void give_up(const char *why, const char *name) {
    fprintf(stderr, "%s %s\n", why, name);
    abort();
}

void *toolhold_alloc(toolhold_call *call, size_t size) {
    struct toolhold_block *block =
        size < SIZE_MAX - sizeof *block ? calloc(1, sizeof *block + size) : NULL;
    if (block == NULL) {
        give_up("out of memory for", "a call");
    }
    block->next = call->blocks;
    call->blocks = block;
    return block->bytes;
}

void toolhold_end(toolhold_call *call) {
    while (call->blocks != NULL) {
        struct toolhold_block *block = call->blocks;
        call->blocks = block->next;
        free(block);
    }
    // The parts grow apart from the rest.
    free(call->parts);
    *call = (toolhold_call){0};
}

// The length of the valid character that begins here, or 0.
static size_t character(const unsigned char *at, size_t left) {
    size_t length = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool is_overlong = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xF0 && at[1] < 0x90);
    bool is_outside = (at[0] == 0xED && at[1] > 0x9F) || (at[0] == 0xF4 && at[1] > 0x8F);
    return is_overlong || is_outside ? 0 : length;
}

bool toolhold_is_utf8(const char *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        size_t step = character((const unsigned char *)bytes + at, length - at);
        if (step == 0) {
            return false;
        }
        at += step;
    }
    return true;
}

const char *toolhold_cleaned(toolhold_call *call, const char *text, size_t *length, size_t limit) {
    if (*length <= limit && toolhold_is_utf8(text, *length)) {
        return text;
    }
    // Each byte becomes at most the three of U+FFFD.
    size_t most = *length < limit ? *length : limit;
    char *clean = toolhold_alloc(call, most * 3 + 1);
    size_t to = 0;
    for (size_t at = 0; at < *length;) {
        size_t step = character((const unsigned char *)text + at, *length - at);
        const char *from = step == 0 ? "\xEF\xBF\xBD" : text + at;
        size_t size = step == 0 ? 3 : step;
        if (to + size > limit) {
            break;
        }
        memcpy(clean + to, from, size);
        to += size;
        at += step == 0 ? 1 : step;
    }
    *length = to;
    return clean;
}

const char *toolhold_vformat(toolhold_call *call, const char *format, va_list values) {
    va_list again;
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) {
        give_up("this format isn't valid:", format);
    }
    char *text = toolhold_alloc(call, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, values);
    size_t cleaned = (size_t)length;
    return toolhold_cleaned(call, text, &cleaned, SIZE_MAX);
}

// The text of a function's last parameters, in a variable of this name.
#define FORMATTED(call, name)                              \
    va_list values;                                        \
    va_start(values, format);                              \
    const char *name = toolhold_vformat(call, format, values); \
    va_end(values)

const char *toolhold_format(toolhold_call *call, const char *format, ...) {
    FORMATTED(call, text);
    return text;
}

// The value of an argument. Any of two types may be asked for.
static const char *value_of(toolhold_call *call, const char *name, toolhold_type type) {
    const toolhold_argument *arguments = call->tool->arguments;
    for (size_t i = 0; arguments != NULL && arguments[i].name != NULL; i++) {
        if (strcmp(arguments[i].name, name) == 0) {
            if (type != TOOLHOLD_JSON && arguments[i].type != type) {
                give_up("the plugin reads an argument as another type than it has:", name);
            }
            return call->values[i];
        }
    }
    give_up("the plugin reads an argument that its tool doesn't have:", name);
    return NULL;
}

bool toolhold_has(toolhold_call *call, const char *name) {
    return value_of(call, name, TOOLHOLD_JSON) != NULL;
}

const char *toolhold_json(toolhold_call *call, const char *name) {
    return value_of(call, name, TOOLHOLD_JSON);
}

const char *toolhold_text(toolhold_call *call, const char *name) {
    const char *value = value_of(call, name, TOOLHOLD_TEXT);
    return value != NULL ? toolhold_json_text(call, value) : NULL;
}

int64_t toolhold_integer(toolhold_call *call, const char *name) {
    const char *value = value_of(call, name, TOOLHOLD_INTEGER);
    int64_t number = 0;
    return value != NULL && toolhold_json_integer(value, &number) ? number : 0;
}

double toolhold_number(toolhold_call *call, const char *name) {
    const char *value = value_of(call, name, TOOLHOLD_NUMBER);
    double number = 0;
    return value != NULL && toolhold_json_number(value, &number) ? number : 0;
}

bool toolhold_boolean(toolhold_call *call, const char *name) {
    const char *value = value_of(call, name, TOOLHOLD_BOOLEAN);
    return value != NULL && strcmp(value, "true") == 0;
}

static void add(toolhold_call *call, toolhold_part part) {
    toolhold_part *parts = realloc(call->parts, (call->part_count + 1) * sizeof part);
    if (parts == NULL) {
        give_up("out of memory for", "an answer");
    }
    call->parts = parts;
    call->parts[call->part_count++] = part;
}

void toolhold_add_text(toolhold_call *call, const char *format, ...) {
    FORMATTED(call, text);
    add(call, (toolhold_part){true, text, strlen(text), NULL});
}

void toolhold_add_bytes(toolhold_call *call, const void *bytes, size_t length, const char *media_type) {
    char *copy = toolhold_alloc(call, length);
    if (length > 0) {
        memcpy(copy, bytes, length);
    }
    add(call, (toolhold_part){false, copy, length, media_type});
}

toolhold_outcome toolhold_answer(toolhold_call *call) {
    (void)call;
    return (toolhold_outcome){false};
}

toolhold_outcome toolhold_answer_emitted(toolhold_call *call) {
    call->after_emitted = true;
    return toolhold_answer(call);
}

toolhold_outcome toolhold_answer_text(toolhold_call *call, const char *format, ...) {
    FORMATTED(call, text);
    add(call, (toolhold_part){true, text, strlen(text), NULL});
    return toolhold_answer(call);
}

toolhold_outcome toolhold_answer_json(toolhold_call *call, const char *format, ...) {
    FORMATTED(call, text);
    call->structured = text;
    add(call, (toolhold_part){true, text, strlen(text), "application/json"});
    return toolhold_answer(call);
}

toolhold_outcome toolhold_fail(toolhold_call *call, toolhold_category category, const char *code,
                         const char *format, ...) {
    FORMATTED(call, text);
    call->category = category;
    call->code = code;
    call->message = text;
    return (toolhold_outcome){true};
}

void toolhold_suggest(toolhold_call *call, const char *format, ...) {
    FORMATTED(call, text);
    call->suggestion = text;
}

void toolhold_retry_after_ms(toolhold_call *call, uint64_t milliseconds) {
    call->has_retry = true;
    call->retry_after_ms = milliseconds;
}

bool toolhold_host_failed(toolhold_call *call) {
    return call->host_message != NULL;
}

const char *toolhold_host_code(toolhold_call *call) {
    return call->host_code;
}

toolhold_outcome toolhold_fail_host(toolhold_call *call) {
    if (!toolhold_host_failed(call)) {
        give_up("no function of the host has failed in", call->tool->name);
    }
    return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, call->host_code, "%s", call->host_message);
}

// What errors of the system mean, in the words of Toolhold's own tools.
static const struct {
    int number;
    const char *code, *words;
} errors[] = {
    {ENOENT, "not-found", "not found"},
    {EACCES, "not-permitted", "not permitted"},
    {EPERM, "not-permitted", "not permitted"},
#ifdef ENOTCAPABLE
    {ENOTCAPABLE, "not-permitted", "not permitted"},
#endif
    {EEXIST, "exists", "exists already"},
    {EISDIR, "is-a-directory", "is a directory"},
    {ENOTDIR, "not-a-directory", "a part of the path is not a directory"},
    {ENOTEMPTY, "not-empty", "the directory is not empty"},
    {EROFS, "read-only", "read-only file system"},
    {ENOSPC, "no-space", "no space left"},
    {EDQUOT, "no-space", "no space left"},
    {EFBIG, "too-large", "too large"},
    {ENAMETOOLONG, "invalid-name", "the file name isn't valid"},
};

toolhold_outcome toolhold_fail_errno(toolhold_call *call, const char *name) {
    int number = errno;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].number == number) {
            return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, errors[i].code, "%s: %s", name,
                              errors[i].words);
        }
    }
    return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, "io", "%s: %s", name, strerror(number));
}

void toolhold_log(toolhold_level level, const char *format, ...) {
    toolhold_call call = {0};
    FORMATTED(&call, text);
    toolhold_host_write_log(level, text, strlen(text));
    toolhold_end(&call);
}

void toolhold_progress(double fraction, const char *format, ...) {
    toolhold_call call = {0};
    FORMATTED(&call, text);
    toolhold_host_report(fraction, text, strlen(text));
    toolhold_end(&call);
}

bool toolhold_emit(toolhold_call *call, const char *format, ...) {
    FORMATTED(call, text);
    return toolhold_host_emit(text, strlen(text));
}

const char *toolhold_config(toolhold_call *call, const char *key) {
    return toolhold_host_config(call, key);
}

const char *toolhold_subject_kind(toolhold_subject subject) {
    static const char *const kinds[] = {NULL, "path", "path", "name", "url", "url", "command"};
    return kinds[subject];
}

bool toolhold_subject_writes(toolhold_subject subject) {
    return subject != TOOLHOLD_READS_PATH && subject != TOOLHOLD_READS_URL;
}

char *toolhold_read_file(toolhold_call *call, const char *path, size_t limit, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    size_t capacity = limit < 65536 ? limit + 1 : 65536, read = 0;
    char *bytes = NULL;
    int failed = 0;
    for (;;) {
        char *more = realloc(bytes, capacity);
        if (more == NULL) {
            failed = ENOMEM;
            break;
        }
        bytes = more;
        // One byte more than the limit shows whether there is more.
        read += fread(bytes + read, 1, capacity - read, file);
        if (ferror(file)) {
            failed = errno != 0 ? errno : EIO;
            break;
        }
        if (read > limit) {
            failed = EFBIG;
            break;
        }
        if (read < capacity) {
            break;
        }
        capacity = capacity > limit / 2 ? limit + 1 : capacity * 2;
    }
    fclose(file);
    char *content = NULL;
    if (failed == 0) {
        content = toolhold_alloc(call, read + 1);
        memcpy(content, bytes, read);
        *length = read;
    }
    free(bytes);
    errno = failed;
    return content;
}
