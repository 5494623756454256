// Tasks: the host's, or in unit tests a stand-in.

#include <stdlib.h>
#include <string.h>

#include "toolhold.h"

#ifdef __wasm__

#include "guest.h"

bool toolhold_schedule_put(toolhold_call *call, const toolhold_task *task) {
    toolhold_host_schedule_task_t asked = {
        .name = toolhold_borrowed_text(task->name),
        .kind = toolhold_borrowed_text(task->kind),
        .when = toolhold_borrowed_text(task->when),
        .zone = {task->zone != NULL, toolhold_borrowed_text(task->zone)},
        .missed = toolhold_borrowed_text(task->missed != NULL ? task->missed : "once"),
        .action = {.tag = TOOLHOLD_HOST_SCHEDULE_ACTION_CALL},
    };
    asked.action.val.call.tool = toolhold_borrowed_text(task->tool);
    asked.action.val.call.arguments =
        toolhold_borrowed_text(task->arguments != NULL ? task->arguments : "{}");
    toolhold_host_schedule_state_t state;
    toolhold_host_schedule_error_t error;
    bool works = toolhold_noted(call, toolhold_host_schedule_put(&asked, &state, &error), &error);
    if (works) {
        toolhold_host_schedule_state_free(&state);
    }
    return works;
}

bool toolhold_schedule_remove(toolhold_call *call, const char *name) {
    plugin_string_t text = toolhold_borrowed_text(name);
    bool removed = false;
    toolhold_host_schedule_error_t error;
    return toolhold_noted(call, toolhold_host_schedule_remove(&text, &removed, &error), &error) && removed;
}

static const char *optional(toolhold_call *call, plugin_option_string_t text) {
    return text.is_some ? toolhold_copied(call, text.val) : NULL;
}

const toolhold_task_state *toolhold_schedule_tasks(toolhold_call *call, size_t *count) {
    toolhold_host_schedule_list_state_t found;
    toolhold_host_schedule_error_t error;
    *count = 0;
    if (!toolhold_noted(call, toolhold_host_schedule_tasks(&found, &error), &error)) {
        return NULL;
    }
    toolhold_task_state *states = toolhold_alloc(call, found.len * sizeof *states);
    for (*count = 0; *count < found.len; ++*count) {
        const toolhold_host_schedule_state_t *from = &found.ptr[*count];
        toolhold_task_state *to = &states[*count];
        to->task.name = toolhold_copied(call, from->task.name);
        to->task.kind = toolhold_copied(call, from->task.kind);
        to->task.when = toolhold_copied(call, from->task.when);
        to->task.zone = optional(call, from->task.zone);
        to->task.missed = toolhold_copied(call, from->task.missed);
        if (from->task.action.tag == TOOLHOLD_HOST_SCHEDULE_ACTION_CALL) {
            to->task.tool = toolhold_copied(call, from->task.action.val.call.tool);
            to->task.arguments = toolhold_copied(call, from->task.action.val.call.arguments);
        }
        to->next = optional(call, from->next);
        to->paused = from->paused;
    }
    toolhold_host_schedule_list_state_free(&found);
    return states;
}

#else

#include "internal.h"

// The tasks, sorted by name, and the memory that they are in. They never run.
static struct held {
    struct held *next;
    toolhold_task task;
} *tasks;
static toolhold_call memory;

static const char *copy_of(const char *text) {
    return text != NULL ? toolhold_format(&memory, "%s", text) : NULL;
}

bool toolhold_schedule_remove(toolhold_call *call, const char *name) {
    (void)call;
    for (struct held **at = &tasks; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->task.name, name) == 0) {
            *at = (*at)->next;
            return true;
        }
    }
    return false;
}

bool toolhold_schedule_put(toolhold_call *call, const toolhold_task *task) {
    toolhold_schedule_remove(call, task->name);
    struct held **at = &tasks, *held = toolhold_alloc(&memory, sizeof *held);
    while (*at != NULL && strcmp((*at)->task.name, task->name) < 0) {
        at = &(*at)->next;
    }
    held->task = (toolhold_task){
        .name = copy_of(task->name),
        .kind = copy_of(task->kind),
        .when = copy_of(task->when),
        .tool = copy_of(task->tool),
        .arguments = copy_of(task->arguments != NULL ? task->arguments : "{}"),
        .zone = copy_of(task->zone),
        .missed = copy_of(task->missed != NULL ? task->missed : "once"),
    };
    held->next = *at;
    *at = held;
    return true;
}

const toolhold_task_state *toolhold_schedule_tasks(toolhold_call *call, size_t *count) {
    *count = 0;
    for (struct held *held = tasks; held != NULL; held = held->next) {
        ++*count;
    }
    toolhold_task_state *states = toolhold_alloc(call, *count * sizeof *states), *to = states;
    for (struct held *held = tasks; held != NULL; held = held->next) {
        *to++ = (toolhold_task_state){.task = held->task, .next = "2030-01-01T00:00:00Z"};
    }
    return states;
}

#endif
