// A plugin with one tool.

#include <ctype.h>

#include "toolhold.h"

static const toolhold_argument word_count_arguments[] = {
    {.name = "path", .description = "The text file.", .subject = TOOLHOLD_READS_PATH},
    {0},
};

static toolhold_outcome word_count(toolhold_call *call) {
    const char *path = toolhold_text(call, "path");
    size_t bytes = 0, lines = 0, words = 0;
    const char *text = toolhold_read_file(call, path, 16 << 20, &bytes);
    if (text == NULL) {
        return toolhold_fail_errno(call, path);
    }
    if (!toolhold_is_utf8(text, bytes)) {
        return toolhold_fail(call, TOOLHOLD_PERMANENT_FAILURE, "invalid-data", "%s: not UTF-8", path);
    }
    bool in_line = false, in_word = false;
    for (size_t i = 0; i < bytes; i++) {
        bool is_word = !isspace((unsigned char)text[i]);
        words += is_word && !in_word;
        lines += !in_line;
        in_word = is_word;
        in_line = text[i] != '\n';
    }
    return toolhold_answer_json(call, "{\"lines\":%zu,\"words\":%zu,\"bytes\":%zu}", lines, words, bytes);
}

const toolhold_tool toolhold_tools[] = {
    {
        .name = "word_count",
        .description = "Counts the lines, words and bytes of a text file. Fails if the file is "
                       "missing, is not UTF-8, or is longer than 16 MiB.",
        .arguments = word_count_arguments,
        .output_schema = "{\"type\":\"object\",\"properties\":{\"lines\":{\"type\":\"integer\"},"
                         "\"words\":{\"type\":\"integer\"},\"bytes\":{\"type\":\"integer\"}},"
                         "\"required\":[\"lines\",\"words\",\"bytes\"]}",
        .promises = TOOLHOLD_READ_ONLY | TOOLHOLD_CLOSED_WORLD,
        .call = word_count,
    },
    {0},
};
