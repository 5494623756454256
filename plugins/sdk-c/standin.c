// What stands for the host in unit tests, which run natively.
#ifndef __wasm__

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "testing.h"

// The call that was tested last. The other ones hold what outlives it.
static berth_call last, notes;
static const char *settings = "{}", *logged = "", *emitted = "";

berth_tested berth_test(const char *tool, const char *arguments) {
    berth_end(&last);
    berth_end(&notes);
    logged = emitted = "";
    berth_outcome outcome = berth_run(&last, tool, arguments);
    const char *text = "";
    for (size_t i = 0; i < last.part_count; i++) {
        if (last.parts[i].is_text) {
            text = berth_format(&last, "%s%s", text, last.parts[i].bytes);
        }
    }
    return (berth_tested){
        .failed = outcome.failed,
        .text = text,
        .structured = last.structured,
        .category = last.category,
        .code = last.code,
        .message = last.message,
    };
}

void berth_test_config(const char *json) {
    settings = json;
}

const char *berth_test_log(void) {
    return logged;
}

const char *berth_test_emitted(void) {
    return emitted;
}

void berth_host_write_log(berth_level level, const char *text, size_t length) {
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    logged = berth_format(&notes, "%s%s: %.*s\n", logged, levels[level], (int)length, text);
}

void berth_host_report(double fraction, const char *text, size_t length) {
    (void)fraction, (void)text, (void)length;
}

bool berth_host_emit(const char *text, size_t length) {
    emitted = berth_format(&notes, "%s%.*s\n", emitted, (int)length, text);
    return true;
}

uint64_t berth_remaining_ms(void) {
    return 60000;
}

bool berth_cancelled(void) {
    return false;
}

// A key and its bytes.
struct entry {
    struct entry *next;
    char *key, *bytes;
    size_t length;
};
static struct entry *store;

const char *berth_store_get(berth_call *call, const char *key, size_t *length) {
    (void)call;
    for (struct entry *each = store; each != NULL; each = each->next) {
        if (strcmp(each->key, key) == 0) {
            *length = each->length;
            return each->bytes;
        }
    }
    return NULL;
}

bool berth_store_put(berth_call *call, const char *key, const void *bytes, size_t length) {
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

const char *berth_host_config(berth_call *call, const char *key) {
    return berth_json_field(call, settings, key);
}

#endif
