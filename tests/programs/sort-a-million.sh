#!/bin/sh
# A million lines through pipes: made, shuffled by a hash, sorted, checked.
command -v sort >/dev/null && command -v awk >/dev/null || { echo "sort or awk is not installed"; exit 77; }
count=${LINES_TO_SORT:-1000000}
sum() { awk '{ s = (s * 31 + $1) % 1000003 } END { print s, NR }'; }
want=$(seq 1 "$count" | sum)
got=$(seq 1 "$count" | awk '{ print ($1 * 7919) % 1000003, $1 }' | sort -n | sort -k2n | cut -d' ' -f2 | sum)
[ "$want" = "$got" ] || { echo "the sorted lines sum up to '$got', not '$want'"; exit 1; }
exit 0
