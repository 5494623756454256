// The exports of a component, and the functions of the host. In unit tests, `standin.c` takes its
// place.
#ifdef __wasm__

#include <stdlib.h>
#include <string.h>

#include "guest.h"

// The most that a host takes of a message.
#define MAX_MESSAGE 4096

static plugin_string_t owned(const char *text, size_t length) {
    plugin_string_t copy;
    plugin_string_dup_n(&copy, text, length);
    return copy;
}

static plugin_string_t owned_text(const char *text) {
    return owned(text, strlen(text));
}

static plugin_option_string_t optional(const char *text) {
    plugin_option_string_t option = {0};
    if (text != NULL) {
        option = (plugin_option_string_t){true, owned_text(text)};
    }
    return option;
}

static toolhold_tool_types_option_json_t optional_json(const char *text) {
    plugin_option_string_t option = optional(text);
    return (toolhold_tool_types_option_json_t){option.is_some, option.val};
}

// Memory of the bindings, which free it themselves.
static void *many(size_t count, size_t size) {
    void *memory = count > 0 ? calloc(count, size) : NULL;
    if (count > 0 && memory == NULL) {
        abort();
    }
    return memory;
}

static void fill_arguments(exports_toolhold_tool_tools_definition_t *definition,
                           const toolhold_argument *arguments) {
    size_t subjects = 0, roles = 0;
    for (const toolhold_argument *each = arguments; each != NULL && each->name != NULL; each++) {
        subjects += each->subject != TOOLHOLD_NOTHING;
        roles += each->role != NULL;
    }
    definition->subjects.ptr = many(subjects, sizeof *definition->subjects.ptr);
    definition->arguments.ptr = many(roles, sizeof *definition->arguments.ptr);
    for (const toolhold_argument *each = arguments; each != NULL && each->name != NULL; each++) {
        if (each->subject != TOOLHOLD_NOTHING) {
            exports_toolhold_tool_tools_subject_t *subject =
                &definition->subjects.ptr[definition->subjects.len++];
            char *pointer = many(strlen(each->name) + 2, 1);
            pointer[0] = '/';
            strcpy(pointer + 1, each->name);
            subject->pointer = (plugin_string_t){(uint8_t *)pointer, strlen(pointer)};
            subject->kind = owned_text(toolhold_subject_kind(each->subject));
            subject->access = owned_text(toolhold_subject_writes(each->subject) ? "write" : "read");
        }
        if (each->role != NULL) {
            exports_toolhold_tool_tools_argument_t *argument =
                &definition->arguments.ptr[definition->arguments.len++];
            argument->name = owned_text(each->name);
            argument->roles.ptr = many(1, sizeof *argument->roles.ptr);
            argument->roles.ptr[argument->roles.len++] = owned_text(each->role);
        }
    }
}

static void fill_promises(exports_toolhold_tool_tools_definition_t *definition, unsigned promises) {
    static const char *const names[] = {"read-only", "additive", "idempotent", "closed-world",
                                        "cacheable"};
    size_t count = sizeof names / sizeof *names;
    definition->promises.ptr = many(count, sizeof *definition->promises.ptr);
    for (size_t i = 0; i < count; i++) {
        if (promises & 1u << i) {
            definition->promises.ptr[definition->promises.len++] = owned_text(names[i]);
        }
    }
}

bool exports_toolhold_tool_tools_list_tools(exports_toolhold_tool_tools_list_definition_t *ret,
                                         exports_toolhold_tool_tools_failure_t *err) {
    (void)err;
    size_t count = 0;
    while (toolhold_tools[count].name != NULL) {
        count++;
    }
    ret->ptr = many(count, sizeof *ret->ptr);
    ret->len = count;
    for (size_t i = 0; i < count; i++) {
        const toolhold_tool *tool = &toolhold_tools[i];
        exports_toolhold_tool_tools_definition_t *definition = &ret->ptr[i];
        definition->name = owned_text(tool->name);
        definition->title = optional(tool->title);
        definition->description = owned_text(tool->description != NULL ? tool->description : "");
        char *schema = toolhold_input_schema(tool);
        definition->input_schema = (plugin_string_t){(uint8_t *)schema, strlen(schema)};
        plugin_option_string_t output = optional(tool->output_schema);
        definition->output_schema.is_some = output.is_some;
        definition->output_schema.val = output.val;
        fill_promises(definition, tool->promises);
        fill_arguments(definition, tool->arguments);
    }
    return true;
}

static toolhold_tool_types_list_content_t contents(const toolhold_call *call) {
    toolhold_tool_types_list_content_t list = {
        many(call->part_count, sizeof(toolhold_tool_types_content_t)), call->part_count};
    for (size_t i = 0; i < call->part_count; i++) {
        const toolhold_part *part = &call->parts[i];
        toolhold_tool_types_content_t *content = &list.ptr[i];
        plugin_string_t bytes = owned(part->bytes, part->length);
        content->media_type = optional(part->media_type);
        if (part->is_text) {
            content->body.tag = TOOLHOLD_TOOL_TYPES_BODY_TEXT;
            content->body.val.text = bytes;
        } else {
            content->body.tag = TOOLHOLD_TOOL_TYPES_BODY_BYTES;
            content->body.val.bytes = (plugin_list_u8_t){bytes.ptr, bytes.len};
        }
    }
    return list;
}

static uint8_t category(toolhold_category category) {
    static const uint8_t categories[] = {
        TOOLHOLD_TOOL_TYPES_CATEGORY_PERMANENT_FAILURE, TOOLHOLD_TOOL_TYPES_CATEGORY_INVALID_PARAMETERS,
        TOOLHOLD_TOOL_TYPES_CATEGORY_TYPE_MISMATCH,     TOOLHOLD_TOOL_TYPES_CATEGORY_RATE_LIMITED,
        TOOLHOLD_TOOL_TYPES_CATEGORY_SERVER_ERROR,      TOOLHOLD_TOOL_TYPES_CATEGORY_NETWORK_ERROR,
        TOOLHOLD_TOOL_TYPES_CATEGORY_TIMEOUT,
    };
    return categories[category];
}

bool exports_toolhold_tool_tools_call_tool(exports_toolhold_tool_tools_invocation_t *invocation,
                                        exports_toolhold_tool_tools_output_t *ret,
                                        exports_toolhold_tool_tools_failure_t *err) {
    toolhold_call call = {0};
    const char *tool = toolhold_format(&call, "%.*s", (int)invocation->tool.len, invocation->tool.ptr);
    const char *arguments =
        toolhold_format(&call, "%.*s", (int)invocation->arguments.len, invocation->arguments.ptr);
    exports_toolhold_tool_tools_invocation_free(invocation);
    toolhold_outcome outcome = toolhold_run(&call, tool, arguments);
    if (outcome.failed) {
        size_t length = strlen(call.message);
        const char *message = toolhold_cleaned(&call, call.message, &length, MAX_MESSAGE);
        err->category = category(call.category);
        err->code = optional(call.code);
        err->message = owned(message, length);
        err->suggestion = optional(call.suggestion);
        err->retry_after_ms = (plugin_option_u64_t){call.has_retry, call.retry_after_ms};
        err->content = contents(&call);
    } else {
        ret->content = contents(&call);
        ret->structured = optional_json(call.structured);
        ret->after_emitted = call.after_emitted;
    }
    toolhold_end(&call);
    return !outcome.failed;
}

void toolhold_host_write_log(toolhold_level level, const char *text, size_t length) {
    static const toolhold_host_log_level_t levels[] = {
        TOOLHOLD_HOST_LOG_LEVEL_DEBUG, TOOLHOLD_HOST_LOG_LEVEL_INFO, TOOLHOLD_HOST_LOG_LEVEL_WARN,
        TOOLHOLD_HOST_LOG_LEVEL_ERROR};
    plugin_string_t message = toolhold_borrowed(text, length);
    toolhold_host_log_write(levels[level], &message);
}

void toolhold_host_report(double fraction, const char *text, size_t length) {
    plugin_string_t message = toolhold_borrowed(text, length);
    toolhold_host_call_progress(fraction >= 0 ? &fraction : NULL, &message);
}

bool toolhold_host_emit(const char *text, size_t length) {
    toolhold_host_call_content_t part = {0};
    part.body.tag = TOOLHOLD_TOOL_TYPES_BODY_TEXT;
    part.body.val.text = toolhold_borrowed(text, length);
    return toolhold_host_call_emit(&part);
}

uint64_t toolhold_remaining_ms(void) {
    return toolhold_host_call_remaining_ms();
}

bool toolhold_cancelled(void) {
    return toolhold_host_call_cancelled();
}

const char *toolhold_host_config(toolhold_call *call, const char *key) {
    plugin_string_t name = toolhold_borrowed(key, strlen(key));
    toolhold_host_config_json_t value;
    if (!toolhold_host_config_get(&name, &value)) {
        return NULL;
    }
    const char *copy = toolhold_format(call, "%.*s", (int)value.len, value.ptr);
    plugin_string_free(&value);
    return copy;
}

bool toolhold_noted(toolhold_call *call, bool works, toolhold_host_types_error_t *error) {
    call->host_code = call->host_message = NULL;
    if (!works) {
        call->host_code = toolhold_format(call, "%.*s", (int)error->code.len, error->code.ptr);
        call->host_message =
            toolhold_format(call, "%.*s", (int)error->message.len, error->message.ptr);
        toolhold_host_types_error_free(error);
    }
    return works;
}

const char *toolhold_store_get(toolhold_call *call, const char *key, size_t *length) {
    plugin_string_t name = toolhold_borrowed(key, strlen(key));
    plugin_option_list_u8_t value;
    toolhold_host_store_error_t error;
    if (!toolhold_noted(call, toolhold_host_store_get(&name, &value, &error), &error) || !value.is_some) {
        return NULL;
    }
    char *copy = toolhold_alloc(call, value.val.len + 1);
    if (value.val.len > 0) {
        memcpy(copy, value.val.ptr, value.val.len);
    }
    *length = value.val.len;
    plugin_option_list_u8_free(&value);
    return copy;
}

bool toolhold_store_put(toolhold_call *call, const char *key, const void *bytes, size_t length) {
    toolhold_host_store_change_t change = {
        .key = toolhold_borrowed(key, strlen(key)),
        .value = {bytes != NULL, {(uint8_t *)bytes, length}},
    };
    toolhold_host_store_list_expectation_t expected = {0};
    toolhold_host_store_list_change_t changes = {&change, 1};
    toolhold_host_store_error_t error;
    bool written;
    return toolhold_noted(call, toolhold_host_store_write(&expected, &changes, &written, &error), &error);
}

#endif
