// Unit tests of tools, which need no host.
#ifndef TOOLHOLD_TESTING_H
#define TOOLHOLD_TESTING_H

#include "toolhold.h"

// What a call came to.
typedef struct {
    bool failed;
    // The parts of the answer that are texts, one after the other.
    const char *text;
    // The value for programs, as JSON, or NULL.
    const char *structured;
    // Of a failure. `code` may be NULL.
    toolhold_category category;
    const char *code, *message;
} toolhold_tested;

// Calls a tool with its arguments as a JSON object. What the result points to lasts until the next
// call of this function.
toolhold_tested toolhold_test(const char *tool, const char *arguments);
// Sets what `toolhold_config` returns from now on: the JSON object of all settings.
void toolhold_test_config(const char *json);
// What was logged and emitted since the last `toolhold_test` began, a line each.
const char *toolhold_test_log(void);
const char *toolhold_test_emitted(void);

#endif
