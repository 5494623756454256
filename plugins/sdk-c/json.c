// JSON as text: what the host has checked is read, and schemas are written.

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static const char *skip_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at) {
    for (at++; *at != '\0' && *at != '"'; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
        }
    }
    return *at == '"' ? at + 1 : at;
}

// The end of the value that begins here. Without recursion: a value may have many levels.
static const char *skip_value(const char *at) {
    size_t depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth > 0 && *at != '\0') {
            at++;
        } else {
            at += strcspn(at, ",]} \t\r\n");
        }
    } while (depth > 0 && *at != '\0');
    return at;
}

static const char *copied(toolhold_call *call, const char *from, const char *end) {
    size_t length = (size_t)(end - from);
    char *copy = toolhold_alloc(call, length + 1);
    memcpy(copy, from, length);
    copy[length] = '\0';
    return copy;
}

static unsigned hex(const char *digits) {
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        char c = digits[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) {
            return 0x110000;
        }
        value = value << 4 | digit;
    }
    return value;
}

static char *encode(char *to, unsigned c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

const char *toolhold_json_text(toolhold_call *call, const char *json) {
    json = skip_space(json);
    if (*json != '"') {
        return NULL;
    }
    // An escape is never shorter than what it stands for.
    char *text = toolhold_alloc(call, strlen(json) + 1), *to = text;
    const char *at = json + 1;
    while (*at != '"') {
        if (*at == '\0') {
            return NULL;
        }
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        const char *known = at[1] != '\0' ? strchr(names, at[1]) : NULL;
        if (known != NULL) {
            *to++ = values[known - names];
            at += 2;
            continue;
        }
        unsigned c = at[1] == 'u' ? hex(at + 2) : 0x110000;
        if (c == 0 || c == 0x110000) {
            return NULL;
        }
        at += 6;
        if (c >= 0xD800 && c < 0xDC00 && at[0] == '\\' && at[1] == 'u') {
            unsigned low = hex(at + 2);
            if (low >= 0xDC00 && low < 0xE000) {
                c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
                at += 6;
            }
        }
        to = encode(to, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
    }
    *to = '\0';
    return text;
}

const char *toolhold_json_next(toolhold_call *call, const char **list) {
    const char *at = skip_space(*list);
    if (*at != '[' && *at != ',') {
        return NULL;
    }
    at = skip_space(at + 1);
    if (*at == ']' || *at == '\0') {
        return NULL;
    }
    const char *end = skip_value(at);
    *list = end;
    return copied(call, at, end);
}

// The next field of an object, in the way of `toolhold_json_next`. NULL: it was the last one.
static const char *next_field(toolhold_call *call, const char **object, const char **value) {
    const char *at = skip_space(*object);
    if (*at != '{' && *at != ',') {
        return NULL;
    }
    at = skip_space(at + 1);
    if (*at != '"') {
        return NULL;
    }
    const char *name = toolhold_json_text(call, copied(call, at, skip_string(at)));
    at = skip_space(skip_string(at));
    if (*at != ':') {
        return NULL;
    }
    at = skip_space(at + 1);
    const char *end = skip_value(at);
    *value = copied(call, at, end);
    *object = end;
    return name != NULL ? name : "";
}

const char *toolhold_json_field(toolhold_call *call, const char *json, const char *name) {
    const char *value = NULL, *found = NULL, *each;
    while ((each = next_field(call, &json, &value)) != NULL) {
        if (strcmp(each, name) == 0) {
            found = value;
        }
    }
    return found;
}

bool toolhold_json_number(const char *json, double *value) {
    json = skip_space(json);
    if (*json != '-' && (*json < '0' || *json > '9')) {
        return false;
    }
    char *end;
    *value = strtod(json, &end);
    return *skip_space(end) == '\0' && isfinite(*value);
}

bool toolhold_json_integer(const char *json, int64_t *value) {
    double number;
    if (!toolhold_json_number(json, &number)) {
        return false;
    }
    json = skip_space(json);
    if (strpbrk(json, ".eE") == NULL) {
        errno = 0;
        *value = strtoll(json, NULL, 10);
        return errno == 0;
    }
    if (number < -0x1p63 || number >= 0x1p63 || number != (double)(int64_t)number) {
        return false;
    }
    *value = (int64_t)number;
    return true;
}

// A text that grows. It ends with a zero.
static void append(toolhold_buffer *buffer, const char *bytes, size_t length) {
    if (buffer->capacity - buffer->length <= length) {
        buffer->capacity = (buffer->length + length + 1) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        if (buffer->bytes == NULL) {
            fputs("out of memory\n", stderr);
            abort();
        }
    }
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    buffer->bytes[buffer->length] = '\0';
}

static void append_text(toolhold_buffer *buffer, const char *text) {
    append(buffer, text, strlen(text));
}

static void append_quoted(toolhold_buffer *buffer, const char *text) {
    append_text(buffer, "\"");
    for (; *text != '\0'; text++) {
        char escape[8];
        if (*text == '"' || *text == '\\') {
            snprintf(escape, sizeof escape, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text);
        } else {
            snprintf(escape, sizeof escape, "%c", *text);
        }
        append_text(buffer, escape);
    }
    append_text(buffer, "\"");
}

const char *toolhold_quote(toolhold_call *call, const char *text) {
    size_t length = strlen(text);
    toolhold_buffer buffer = {0};
    append_quoted(&buffer, toolhold_cleaned(call, text, &length, SIZE_MAX));
    const char *quoted = copied(call, buffer.bytes, buffer.bytes + buffer.length);
    free(buffer.bytes);
    return quoted;
}

static void append_member(toolhold_buffer *buffer, bool *is_first, const char *name) {
    append_text(buffer, *is_first ? "\"" : ",\"");
    *is_first = false;
    append_text(buffer, name);
    append_text(buffer, "\":");
}

static void append_schema(toolhold_buffer *buffer, const toolhold_argument *argument) {
    static const char *const types[] = {"\"string\"", "\"integer\"", "\"number\"", "\"boolean\""};
    bool is_first = true;
    append_text(buffer, "{");
    if (argument->type != TOOLHOLD_JSON) {
        append_member(buffer, &is_first, "type");
        append_text(buffer, types[argument->type]);
    }
    if (argument->description != NULL) {
        append_member(buffer, &is_first, "description");
        append_quoted(buffer, argument->description);
    }
    if (argument->fallback != NULL) {
        append_member(buffer, &is_first, "default");
        append_text(buffer, argument->fallback);
    }
    if (argument->schema != NULL) {
        append_text(buffer, is_first ? "" : ",");
        append_text(buffer, argument->schema);
    }
    append_text(buffer, "}");
}

char *toolhold_input_schema(const toolhold_tool *tool) {
    static const toolhold_argument none[1];
    const toolhold_argument *arguments = tool->arguments != NULL ? tool->arguments : none;
    toolhold_buffer buffer = {0};
    append_text(&buffer, "{\"type\":\"object\",\"properties\":{");
    bool is_first = true;
    for (const toolhold_argument *each = arguments; each->name != NULL; each++) {
        append_text(&buffer, is_first ? "" : ",");
        is_first = false;
        append_quoted(&buffer, each->name);
        append_text(&buffer, ":");
        append_schema(&buffer, each);
    }
    append_text(&buffer, "},\"required\":[");
    is_first = true;
    for (const toolhold_argument *each = arguments; each->name != NULL; each++) {
        if (!each->optional && each->fallback == NULL) {
            append_text(&buffer, is_first ? "" : ",");
            is_first = false;
            append_quoted(&buffer, each->name);
        }
    }
    append_text(&buffer, "],\"additionalProperties\":false}");
    return buffer.bytes;
}

// Decides what the arguments of a call are. Returns false after a failure.
static bool is_of_type(toolhold_call *call, const toolhold_argument *argument, const char *json) {
    int64_t integer;
    double number;
    switch (argument->type) {
    case TOOLHOLD_TEXT:
        return toolhold_json_text(call, json) != NULL;
    case TOOLHOLD_INTEGER:
        return toolhold_json_integer(json, &integer);
    case TOOLHOLD_NUMBER:
        return toolhold_json_number(json, &number);
    case TOOLHOLD_BOOLEAN:
        return strcmp(json, "true") == 0 || strcmp(json, "false") == 0;
    case TOOLHOLD_JSON:
        return true;
    }
    return false;
}

static toolhold_outcome check(toolhold_call *call, const char *arguments, bool *is_valid) {
    static const char *const types[] = {"a text without zeros", "an integer of 64 bits", "a number",
                                        "true or false"};
    const toolhold_tool *tool = call->tool;
    size_t count = 0;
    while (tool->arguments != NULL && tool->arguments[count].name != NULL) {
        count++;
    }
    call->values = toolhold_alloc(call, (count + 1) * sizeof *call->values);
    for (size_t i = 0; i < count; i++) {
        call->values[i] = tool->arguments[i].fallback;
    }
    const char *value = NULL, *name;
    while ((name = next_field(call, &arguments, &value)) != NULL) {
        size_t i = 0;
        while (i < count && strcmp(tool->arguments[i].name, name) != 0) {
            i++;
        }
        if (i == count) {
            return toolhold_fail(call, TOOLHOLD_INVALID_PARAMETERS, NULL,
                              "the tool has no argument %s", name);
        }
        const toolhold_argument *argument = &tool->arguments[i];
        if (argument->optional && argument->type != TOOLHOLD_JSON && strcmp(value, "null") == 0) {
            continue;
        }
        if (!is_of_type(call, argument, value)) {
            return toolhold_fail(call, TOOLHOLD_TYPE_MISMATCH, NULL, "%s has to be %s", name,
                              types[argument->type]);
        }
        call->values[i] = value;
    }
    for (size_t i = 0; i < count; i++) {
        if (call->values[i] == NULL && !tool->arguments[i].optional) {
            return toolhold_fail(call, TOOLHOLD_INVALID_PARAMETERS, NULL, "%s is missing",
                              tool->arguments[i].name);
        }
    }
    *is_valid = true;
    return (toolhold_outcome){false};
}

toolhold_outcome toolhold_run(toolhold_call *call, const char *tool, const char *arguments) {
    call->tool = toolhold_tools;
    while (call->tool->name != NULL && strcmp(call->tool->name, tool) != 0) {
        call->tool++;
    }
    if (call->tool->name == NULL) {
        return toolhold_fail(call, TOOLHOLD_INVALID_PARAMETERS, NULL, "the plugin has no tool %s", tool);
    }
    bool is_valid = false;
    toolhold_outcome outcome = check(call, arguments, &is_valid);
    return is_valid ? call->tool->call(call) : outcome;
}
