#!/usr/bin/env bash
# Checks how cmn/ is built up: what the compiler read and what the objects call, not what a comment says.
#
#   tests/rooms.sh [OBJECTS]      OBJECTS: folder of the compiled module, build/cpu/cmn
#
# 1. A room includes headers of its own and of rooms above it in ROOMS, also through other headers (files *.d).
# 2. A room calls functions of its own and of rooms above it (nm).
# 3. Inside a room the files' calls and includes have no circle.
# 4. Only engine/ and hooks/ read Darknet's headers.
# Prints a line for each violation; status 1 when there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

ROOMS='base config mpi transports engine compression communicators optimizers data report evaluators checkpoint watchdog trainer tools hooks'
KNOW_DARKNET='engine hooks'

objects=${1:-build/cpu/cmn}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The files of the module that were compiled, without .c.
find "$objects" -name '*.o' -printf '%P\n' | sed 's/\.o$//' | while IFS= read -r unit; do
    [[ ! -f cmn/$unit.c ]] || echo "$unit"
done | LC_ALL=C sort >"$tmp/units"
[[ $(wc -l <"$tmp/units") -gt 50 ]] || { echo "no objects in $objects: build first"; exit 1; }

mapfile -t units <"$tmp/units"
depends=() sources=() compiled=()
for unit in "${units[@]}"; do
    depends+=("$objects/$unit.d") sources+=("cmn/$unit.c") compiled+=("$objects/$unit.o")
    [[ ! -f cmn/$unit.h ]] || sources+=("cmn/$unit.h")
done
{
    # Headers of the module and of Darknet that the compiler read.
    awk -v objects="$objects/" '
        FNR == 1 { unit = substr(FILENAME, length(objects) + 1); sub(/\.d$/, "", unit) }
        { for (i = 1; i <= NF; i++) {
            if ($i ~ /(^|\/)cmn\/[a-z_]+\/[a-z0-9_]+\.h$/) { sub(/.*cmn\//, "", $i); sub(/\.h$/, "", $i); print "read", unit, $i }
            else if ($i ~ /(^|\/)darknet(-[a-z]+)?\/(src|include)\/[a-z0-9_]+\.h$/) { sub(/.*\//, "", $i); print "darknet", unit, $i } } }
        ' "${depends[@]}"
    # Those that it names itself.
    awk '
        FNR == 1 { unit = FILENAME; sub(/^cmn\//, "", unit); sub(/\.[ch]$/, "", unit) }
        /^#include "[a-z_]*\/[a-z0-9_]*\.h"/ { split($0, f, "\""); sub(/\.h$/, "", f[2]); print "names", unit, f[2] }
        ' "${sources[@]}"
    nm -A "${compiled[@]}" | awk -v objects="$objects/" '
        { at = index($0, ".o:"); unit = substr($0, length(objects) + 1, at - length(objects) - 1); $0 = substr($0, at + 3) }
        $2 ~ /^[TDBRVWC]$/ { print "defines", unit, $3 }
        $1 == "U" { print "uses", unit, $2 }'
} | sort -u >"$tmp/facts"

# Edges between files: kind, from, to, why.
awk '
    $1 == "defines" { home[$3] = $2 }
    { line[NR] = $0 }
    END {
        for (i = 1; i <= NR; i++) {
            split(line[i], f, " ")
            if (f[1] == "uses" && f[3] in home && home[f[3]] != f[2]) print "calls", f[2], home[f[3]], f[3]
            if (f[1] == "read") print "reads", f[2], f[3], f[3] ".h"
            if (f[1] == "names" && f[3] != f[2]) print "names", f[2], f[3], f[3] ".h"
        }
    }' "$tmp/facts" >"$tmp/edges"

awk -v rooms="$ROOMS" '
    function room(file) { sub(/\/.*/, "", file); return file }
    BEGIN { n = split(rooms, name, " "); for (i = 1; i <= n; i++) floor[name[i]] = i }
    {
        from = room($2); to = room($3)
        if (!(from in floor) || !(to in floor)) print "no such room: " $2 " or " $3
        else if (floor[to] > floor[from]) print "cmn/" $2 ".c " $1 " " $4 ": " to "/ is below " from "/"
    }' "$tmp/edges" | sort -u >"$tmp/found"

awk -v know="$KNOW_DARKNET" '
    BEGIN { n = split(know, name, " "); for (i = 1; i <= n; i++) may[name[i]] = 1 }
    $1 == "darknet" { room = $2; sub(/\/.*/, "", room); if (!(room in may)) print "cmn/" $2 ".c reads Darknet'"'"'s " $3 }
    ' "$tmp/facts" | sort -u >>"$tmp/found"

# Circles have no file in common, so one sort finds those of all rooms.
awk '
    function room(file) { sub(/\/.*/, "", file); return file }
    ($1 == "calls" || $1 == "names") && room($2) == room($3) { print $2, $3 }' "$tmp/edges" >"$tmp/inside"
{ tsort "$tmp/inside" 2>&1 >/dev/null || true; } | sed -n 's/^tsort: \([a-z_]*\)\(\/.*\)$/\1 \1\2/p' | sort -u |
    awk '{ files[$1] = files[$1] " " $2 } END { for (room in files) print "a circle inside " room "/:" files[room] }' >>"$tmp/found"

cat "$tmp/found"
[[ ! -s $tmp/found ]]
