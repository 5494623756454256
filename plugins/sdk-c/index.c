// Documents and ranked search in them: the host's, or in unit tests a stand-in.

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "toolhold.h"

#ifdef __wasm__

#include "guest.h"

static plugin_list_string_t tags_of(toolhold_call *call, const char *const *tags) {
    plugin_list_string_t list = {0};
    while (tags != NULL && tags[list.len] != NULL) {
        list.len++;
    }
    list.ptr = toolhold_alloc(call, list.len * sizeof *list.ptr);
    for (size_t i = 0; i < list.len; i++) {
        list.ptr[i] = toolhold_borrowed_text(tags[i]);
    }
    return list;
}

static plugin_option_list_s8_t vector_of(const int8_t *vector, size_t dimensions) {
    return (plugin_option_list_s8_t){vector != NULL, {(int8_t *)vector, dimensions}};
}

bool toolhold_index_put(toolhold_call *call, const toolhold_document *documents, size_t count) {
    toolhold_host_index_list_document_t list = {toolhold_alloc(call, count * sizeof *list.ptr), count};
    for (size_t i = 0; i < count; i++) {
        list.ptr[i].key = toolhold_borrowed_text(documents[i].key);
        list.ptr[i].text = toolhold_borrowed_text(documents[i].text);
        list.ptr[i].tags = tags_of(call, documents[i].tags);
        list.ptr[i].vector = vector_of(documents[i].vector, documents[i].dimensions);
        list.ptr[i].data = (plugin_list_u8_t){(uint8_t *)documents[i].data, documents[i].length};
    }
    toolhold_host_index_error_t error;
    return toolhold_noted(call, toolhold_host_index_put(&list, &error), &error);
}

bool toolhold_index_delete(toolhold_call *call, const char *key) {
    plugin_string_t text = toolhold_borrowed_text(key);
    plugin_list_string_t keys = {&text, 1};
    toolhold_host_index_error_t error;
    return toolhold_noted(call, toolhold_host_index_delete(&keys, &error), &error);
}

// Bytes of the host's, as long as the call, with a zero after them.
static void *bytes_of(toolhold_call *call, const void *bytes, size_t length) {
    char *copy = toolhold_alloc(call, length + 1);
    if (length > 0) {
        memcpy(copy, bytes, length);
    }
    return copy;
}

const toolhold_document *toolhold_index_get(toolhold_call *call, const char *key) {
    plugin_string_t text = toolhold_borrowed_text(key);
    plugin_list_string_t keys = {&text, 1};
    toolhold_host_index_list_option_document_t found;
    toolhold_host_index_error_t error;
    if (!toolhold_noted(call, toolhold_host_index_get(&keys, &found, &error), &error)) {
        return NULL;
    }
    toolhold_document *document = NULL;
    if (found.len > 0 && found.ptr[0].is_some) {
        const toolhold_host_index_document_t *held = &found.ptr[0].val;
        document = toolhold_alloc(call, sizeof *document);
        document->key = toolhold_copied(call, held->key);
        document->text = toolhold_copied(call, held->text);
        const char **tags = toolhold_alloc(call, (held->tags.len + 1) * sizeof *tags);
        for (size_t i = 0; i < held->tags.len; i++) {
            tags[i] = toolhold_copied(call, held->tags.ptr[i]);
        }
        document->tags = tags;
        if (held->vector.is_some) {
            document->dimensions = held->vector.val.len;
            document->vector = bytes_of(call, held->vector.val.ptr, document->dimensions);
        }
        document->length = held->data.len;
        document->data = bytes_of(call, held->data.ptr, document->length);
    }
    toolhold_host_index_list_option_document_free(&found);
    return document;
}

const toolhold_hit *toolhold_index_search(toolhold_call *call, const toolhold_query *query, size_t *count) {
    toolhold_host_index_query_t asked = {
        .words = toolhold_borrowed_text(query->words),
        .tags = tags_of(call, query->tags),
        .prefix = toolhold_borrowed_text(query->prefix),
        .vector = vector_of(query->vector, query->dimensions),
        .limit = query->limit != 0 ? query->limit : 10,
    };
    toolhold_host_index_list_hit_t found;
    toolhold_host_index_error_t error;
    *count = 0;
    if (!toolhold_noted(call, toolhold_host_index_search(&asked, &found, &error), &error)) {
        return NULL;
    }
    toolhold_hit *hits = toolhold_alloc(call, found.len * sizeof *hits);
    for (*count = 0; *count < found.len; ++*count) {
        hits[*count] = (toolhold_hit){toolhold_copied(call, found.ptr[*count].key), found.ptr[*count].score};
    }
    toolhold_host_index_list_hit_free(&found);
    return hits;
}

#else

#include "internal.h"

// The documents, the latest first, and the memory that they are in.
static struct held {
    struct held *next;
    toolhold_document document;
} *index_held;
static toolhold_call memory;

static const void *copy_of(const void *bytes, size_t length) {
    return bytes != NULL ? memcpy(toolhold_alloc(&memory, length + 1), bytes, length) : NULL;
}

static const char *text_of(const char *text) {
    return text != NULL ? copy_of(text, strlen(text)) : "";
}

bool toolhold_index_delete(toolhold_call *call, const char *key) {
    (void)call;
    for (struct held **at = &index_held; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->document.key, key) == 0) {
            *at = (*at)->next;
            break;
        }
    }
    return true;
}

bool toolhold_index_put(toolhold_call *call, const toolhold_document *documents, size_t count) {
    for (size_t i = 0; i < count; i++) {
        toolhold_index_delete(call, documents[i].key);
        struct held *held = toolhold_alloc(&memory, sizeof *held);
        held->document = documents[i];
        held->document.key = text_of(documents[i].key);
        held->document.text = text_of(documents[i].text);
        held->document.vector = copy_of(documents[i].vector, documents[i].dimensions);
        held->document.data = copy_of(documents[i].data, documents[i].length);
        size_t tags = 0;
        while (documents[i].tags != NULL && documents[i].tags[tags] != NULL) {
            tags++;
        }
        const char **copies = toolhold_alloc(&memory, (tags + 1) * sizeof *copies);
        for (size_t tag = 0; tag < tags; tag++) {
            copies[tag] = text_of(documents[i].tags[tag]);
        }
        held->document.tags = copies;
        held->next = index_held;
        index_held = held;
    }
    return true;
}

const toolhold_document *toolhold_index_get(toolhold_call *call, const char *key) {
    (void)call;
    for (struct held *held = index_held; held != NULL; held = held->next) {
        if (strcmp(held->document.key, key) == 0) {
            return &held->document;
        }
    }
    return NULL;
}

// The next word after `*text`, which is moved behind it. False: there is none.
static bool next_word(const char **text, const char **word, size_t *length) {
    while (**text != 0 && !isalnum((unsigned char)**text) && (unsigned char)**text < 0x80) {
        ++*text;
    }
    *word = *text;
    while (isalnum((unsigned char)**text) || (unsigned char)**text >= 0x80) {
        ++*text;
    }
    *length = (size_t)(*text - *word);
    return *length > 0;
}

static bool has_word(const char *text, const char *asked, size_t asked_length) {
    const char *word;
    size_t length;
    while (next_word(&text, &word, &length)) {
        bool is_same = length == asked_length;
        for (size_t i = 0; is_same && i < length; i++) {
            is_same = tolower((unsigned char)word[i]) == tolower((unsigned char)asked[i]);
        }
        if (is_same) {
            return true;
        }
    }
    return false;
}

static bool has_tags(const toolhold_document *document, const char *const *tags) {
    for (; tags != NULL && *tags != NULL; tags++) {
        const char *const *own = document->tags;
        while (*own != NULL && strcmp(*own, *tags) != 0) {
            own++;
        }
        if (*own == NULL) {
            return false;
        }
    }
    return true;
}

static int by_score(const void *a, const void *b) {
    double difference = ((const toolhold_hit *)b)->score - ((const toolhold_hit *)a)->score;
    return (difference > 0) - (difference < 0);
}

// Ranks by the number of words that a document shares with the query, and takes no vector.
const toolhold_hit *toolhold_index_search(toolhold_call *call, const toolhold_query *query, size_t *count) {
    size_t all = 0;
    for (struct held *held = index_held; held != NULL; held = held->next) {
        all++;
    }
    toolhold_hit *hits = toolhold_alloc(call, all * sizeof *hits);
    *count = 0;
    const char *prefix = query->prefix != NULL ? query->prefix : "";
    for (struct held *held = index_held; held != NULL; held = held->next) {
        const toolhold_document *document = &held->document;
        const char *asked = query->words != NULL ? query->words : "", *word;
        size_t length, words = 0;
        double score = 0;
        for (; next_word(&asked, &word, &length); words++) {
            score += has_word(document->text, word, length);
        }
        if (strncmp(document->key, prefix, strlen(prefix)) == 0 && (score > 0 || words == 0) &&
            has_tags(document, query->tags)) {
            hits[(*count)++] = (toolhold_hit){toolhold_format(call, "%s", document->key), score};
        }
    }
    qsort(hits, *count, sizeof *hits, by_score);
    size_t limit = query->limit != 0 ? query->limit : 10;
    *count = *count < limit ? *count : limit;
    return hits;
}

#endif
