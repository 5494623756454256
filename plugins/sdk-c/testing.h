// Unit tests of tools, which need no host.
#ifndef BERTH_TESTING_H
#define BERTH_TESTING_H

#include "berth.h"

// What a call came to.
typedef struct {
    bool failed;
    // The parts of the answer that are texts, one after the other.
    const char *text;
    // The value for programs, as JSON, or NULL.
    const char *structured;
    // Of a failure. `code` may be NULL.
    berth_category category;
    const char *code, *message;
} berth_tested;

// Calls a tool with its arguments as a JSON object. What the result points to lasts until the next
// call of this function.
berth_tested berth_test(const char *tool, const char *arguments);
// Sets what `berth_config` returns from now on: the JSON object of all settings.
void berth_test_config(const char *json);
// What was logged and emitted since the last `berth_test` began, a line each.
const char *berth_test_log(void);
const char *berth_test_emitted(void);

#endif
