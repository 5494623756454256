// What the files of the SDK have in common in a component.
#ifndef TOOLHOLD_GUEST_H
#define TOOLHOLD_GUEST_H

#include <string.h>

#include "bindings/plugin.h"
#include "internal.h"

// A text that the host only reads.
static inline plugin_string_t toolhold_borrowed(const char *text, size_t length) {
    return (plugin_string_t){(uint8_t *)text, length};
}

// The same for a text that ends with a zero. NULL is empty.
static inline plugin_string_t toolhold_borrowed_text(const char *text) {
    return toolhold_borrowed(text, text != NULL ? strlen(text) : 0);
}

// A text of the host's, as long as the call.
static inline const char *toolhold_copied(toolhold_call *call, plugin_string_t text) {
    return toolhold_format(call, "%.*s", (int)text.len, text.ptr);
}

// Notes whether a function of the host works, and why not. Returns `works`.
bool toolhold_noted(toolhold_call *call, bool works, toolhold_host_types_error_t *error);

#endif
