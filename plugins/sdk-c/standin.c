// What stands for the host in unit tests, which run natively.
#ifndef __wasm__

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "testing.h"

// The call that was tested last. The other ones hold what outlives it.
static toolhold_call last, notes;
static const char *settings = "{}", *logged = "", *emitted = "";

toolhold_tested toolhold_test(const char *tool, const char *arguments) {
    toolhold_end(&last);
    toolhold_end(&notes);
    logged = emitted = "";
    toolhold_outcome outcome = toolhold_run(&last, tool, arguments);
    const char *text = "";
    for (size_t i = 0; i < last.part_count; i++) {
        if (last.parts[i].is_text) {
            text = toolhold_format(&last, "%s%s", text, last.parts[i].bytes);
        }
    }
    return (toolhold_tested){
        .failed = outcome.failed,
        .text = text,
        .structured = last.structured,
        .category = last.category,
        .code = last.code,
        .message = last.message,
    };
}

void toolhold_test_config(const char *json) {
    settings = json;
}

const char *toolhold_test_log(void) {
    return logged;
}

const char *toolhold_test_emitted(void) {
    return emitted;
}

void toolhold_host_write_log(toolhold_level level, const char *text, size_t length) {
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    logged = toolhold_format(&notes, "%s%s: %.*s\n", logged, levels[level], (int)length, text);
}

void toolhold_host_report(double fraction, const char *text, size_t length) {
    (void)fraction, (void)text, (void)length;
}

bool toolhold_host_emit(const char *text, size_t length) {
    emitted = toolhold_format(&notes, "%s%.*s\n", emitted, (int)length, text);
    return true;
}

uint64_t toolhold_remaining_ms(void) {
    return 60000;
}

bool toolhold_cancelled(void) {
    return false;
}

// A key and its bytes.
struct entry {
    struct entry *next;
    char *key, *bytes;
    size_t length;
};
static struct entry *store;

const char *toolhold_store_get(toolhold_call *call, const char *key, size_t *length) {
    (void)call;
    for (struct entry *each = store; each != NULL; each = each->next) {
        if (strcmp(each->key, key) == 0) {
            *length = each->length;
            return each->bytes;
        }
    }
    return NULL;
}

bool toolhold_store_put(toolhold_call *call, const char *key, const void *bytes, size_t length) {
    (void)call;
    struct entry **at = &store;
    while (*at != NULL && strcmp((*at)->key, key) != 0) {
        at = &(*at)->next;
    }
    struct entry *old = *at;
    if (old != NULL) {
        *at = old->next;
        free(old->key);
        free(old->bytes);
        free(old);
    }
    if (bytes == NULL) {
        return true;
    }
    struct entry *new = calloc(1, sizeof *new);
    size_t key_size = strlen(key) + 1;
    if (new == NULL || (new->key = malloc(key_size)) == NULL ||
        (new->bytes = calloc(1, length + 1)) == NULL) {
        abort();
    }
    memcpy(new->key, key, key_size);
    memcpy(new->bytes, bytes, length);
    new->length = length;
    new->next = store;
    store = new;
    return true;
}

const char *toolhold_host_config(toolhold_call *call, const char *key) {
    return toolhold_json_field(call, settings, key);
}

#endif
