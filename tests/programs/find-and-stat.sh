#!/bin/sh
# Every file of the root file system is found and can be looked at.
command -v find >/dev/null && command -v xargs >/dev/null && command -v stat >/dev/null ||
    { echo "find, xargs or stat is not installed"; exit 77; }
list=${TMPDIR:-/tmp}/find-test.$$
trap 'rm -f "$list" "$list".*' EXIT
# Places that others change at the same time are left out.
find / -xdev \( -path /tmp -o -path /work -o -path /proc -o -path /root -o -path /run -o -path /var \
    -o -path /home -o -path /usr/share -o -path /opt -o -path /usr/local \) -prune -o -print0 > "$list" 2> "$list.err" ||
    { echo "find failed: $(tail -n 1 "$list.err")"; exit 1; }
names=$(tr -dc '\0' < "$list" | wc -c)
xargs -0 stat -c '%F %s' < "$list" > "$list.out" 2> "$list.err" ||
    { echo "stat failed: $(tail -n 1 "$list.err")"; exit 1; }
lines=$(wc -l < "$list.out")
[ "$names" -gt 50 ] || { echo "only $names files found"; exit 1; }
[ "$names" -eq "$lines" ] || { echo "$names files found, $lines looked at"; exit 1; }
grep -q '^directory' "$list.out" || { echo "no directory among them"; exit 1; }
exit 0
