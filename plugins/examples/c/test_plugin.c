// Tests of the plugin, which need no host.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "testing.h"

int main(void) {
    FILE *file = fopen("build/notes.txt", "w");
    assert(file != NULL);
    fputs("one two\nthree\n", file);
    fclose(file);
    toolhold_tested counted = toolhold_test("word_count", "{\"path\":\"build/notes.txt\"}");
    assert(!counted.failed);
    assert(strcmp(counted.structured, "{\"lines\":2,\"words\":3,\"bytes\":14}") == 0);

    toolhold_tested missing = toolhold_test("word_count", "{\"path\":\"/no/such/file\"}");
    assert(missing.failed && strcmp(missing.code, "not-found") == 0);
    assert(strcmp(missing.message, "/no/such/file: not found") == 0);
    return 0;
}
