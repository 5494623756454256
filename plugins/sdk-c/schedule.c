// Tasks: the host's, or in unit tests a stand-in.

#include <stdlib.h>
#include <string.h>

#include "berth.h"

#ifdef __wasm__

#include "guest.h"

bool berth_schedule_put(berth_call *call, const berth_task *task) {
    berth_host_schedule_task_t asked = {
        .name = berth_borrowed_text(task->name),
        .kind = berth_borrowed_text(task->kind),
        .when = berth_borrowed_text(task->when),
        .zone = {task->zone != NULL, berth_borrowed_text(task->zone)},
        .missed = berth_borrowed_text(task->missed != NULL ? task->missed : "once"),
        .action = {.tag = BERTH_HOST_SCHEDULE_ACTION_CALL},
    };
    asked.action.val.call.tool = berth_borrowed_text(task->tool);
    asked.action.val.call.arguments =
        berth_borrowed_text(task->arguments != NULL ? task->arguments : "{}");
    berth_host_schedule_state_t state;
    berth_host_schedule_error_t error;
    bool works = berth_noted(call, berth_host_schedule_put(&asked, &state, &error), &error);
    if (works) {
        berth_host_schedule_state_free(&state);
    }
    return works;
}

bool berth_schedule_remove(berth_call *call, const char *name) {
    plugin_string_t text = berth_borrowed_text(name);
    bool removed = false;
    berth_host_schedule_error_t error;
    return berth_noted(call, berth_host_schedule_remove(&text, &removed, &error), &error) && removed;
}

static const char *optional(berth_call *call, plugin_option_string_t text) {
    return text.is_some ? berth_copied(call, text.val) : NULL;
}

const berth_task_state *berth_schedule_tasks(berth_call *call, size_t *count) {
    berth_host_schedule_list_state_t found;
    berth_host_schedule_error_t error;
    *count = 0;
    if (!berth_noted(call, berth_host_schedule_tasks(&found, &error), &error)) {
        return NULL;
    }
    berth_task_state *states = berth_alloc(call, found.len * sizeof *states);
    for (*count = 0; *count < found.len; ++*count) {
        const berth_host_schedule_state_t *from = &found.ptr[*count];
        berth_task_state *to = &states[*count];
        to->task.name = berth_copied(call, from->task.name);
        to->task.kind = berth_copied(call, from->task.kind);
        to->task.when = berth_copied(call, from->task.when);
        to->task.zone = optional(call, from->task.zone);
        to->task.missed = berth_copied(call, from->task.missed);
        if (from->task.action.tag == BERTH_HOST_SCHEDULE_ACTION_CALL) {
            to->task.tool = berth_copied(call, from->task.action.val.call.tool);
            to->task.arguments = berth_copied(call, from->task.action.val.call.arguments);
        }
        to->next = optional(call, from->next);
        to->paused = from->paused;
    }
    berth_host_schedule_list_state_free(&found);
    return states;
}

#else

#include "internal.h"

// The tasks, sorted by name, and the memory that they are in. They never run.
static struct held {
    struct held *next;
    berth_task task;
} *tasks;
static berth_call memory;

static const char *copy_of(const char *text) {
    return text != NULL ? berth_format(&memory, "%s", text) : NULL;
}

bool berth_schedule_remove(berth_call *call, const char *name) {
    (void)call;
    for (struct held **at = &tasks; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->task.name, name) == 0) {
            *at = (*at)->next;
            return true;
        }
    }
    return false;
}

bool berth_schedule_put(berth_call *call, const berth_task *task) {
    berth_schedule_remove(call, task->name);
    struct held **at = &tasks, *held = berth_alloc(&memory, sizeof *held);
    while (*at != NULL && strcmp((*at)->task.name, task->name) < 0) {
        at = &(*at)->next;
    }
    held->task = (berth_task){
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

const berth_task_state *berth_schedule_tasks(berth_call *call, size_t *count) {
    *count = 0;
    for (struct held *held = tasks; held != NULL; held = held->next) {
        ++*count;
    }
    berth_task_state *states = berth_alloc(call, *count * sizeof *states), *to = states;
    for (struct held *held = tasks; held != NULL; held = held->next) {
        *to++ = (berth_task_state){.task = held->task, .next = "2030-01-01T00:00:00Z"};
    }
    return states;
}

#endif
