#!/bin/sh
# The shell tells of a core file, and the file is there.
[ "$(cat /proc/sys/kernel/core_pattern)" = core ] || exit 77
[ "$(cat /proc/sys/kernel/core_uses_pid)" = 0 ] || exit 77
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
for shell in /bin/bash /bin/dash; do
    [ -x $shell ] || continue
    ulimit -S -c unlimited || exit 77
    $shell -c 'sleep 0; sh -c "kill -SEGV \$\$"; true' 2>told
    grep -q 'Segmentation fault *(core dumped)' told || { echo "$shell:"; cat told; exit 1; }
    [ -s core ] || { echo "$shell: no core file"; exit 1; }
    rm core
    ulimit -S -c 0
    $shell -c 'sleep 0; sh -c "kill -SEGV \$\$"; true' 2>told
    grep -q 'Segmentation fault' told || exit 1
    grep -q 'core dumped' told && { echo "$shell without a limit:"; cat told; exit 1; }
    [ ! -e core ] || exit 1
done
exit 0
