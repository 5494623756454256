#!/bin/bash
# Lists the functions that scripts define, as Bash's own parser reads them. Reads paths from stdin;
# writes a line `NAME<TAB>LINE<TAB>PATH` for each definition. Nothing is run: Bash only prints what
# it has parsed, in which each function begins with `NAME () ` on a line of its own. The line is
# where the source has the name.
while IFS= read -r path; do
    bash --pretty-print "$path" 2>/dev/null |
        sed -nE 's/^[[:space:]]*(function )?([^[:space:]()]+) \(\) *$/\2/p' | sort -u |
        while IFS= read -r name; do
            quoted=$(printf '%s' "$name" | sed 's/[][().*+?^$|{}\\]/\\&/g')
            pattern="(^|[[:space:];{&|])($quoted[[:space:]]*\([[:space:]]*\)|function[[:space:]]+$quoted([[:space:]({]|$))"
            grep -nE -- "$pattern" "$path" | grep -vE '^[0-9]+:[[:space:]]*#' | while IFS=: read -r line _; do
                printf '%s\t%s\t%s\n' "$name" "$line" "$path"
            done
        done
done
