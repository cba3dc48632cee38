#!/bin/sh
# Pipelines of busybox applets: sorting, cutting, counting, archives, compression, find.
set -u
command -v busybox >/dev/null || { echo "busybox is not installed"; exit 77; }
bb=busybox
dir=${TMPDIR:-/tmp}/busybox-test.$$
mkdir "$dir" && cd "$dir" || exit 1
trap 'cd /; rm -rf "$dir"' EXIT

fail() { echo "failed: $*"; exit 1; }
is() { [ "$1" = "$2" ] || fail "$3: got '$1', not '$2'"; }

is "$($bb seq 1 100 | $bb sort -rn | $bb head -n 3 | $bb tr '\n' ' ')" "100 99 98 " "sort -rn"
is "$($bb seq 1 1000 | $bb awk '{ s += $1 } END { print s }')" 500500 "awk sum"
is "$(printf 'b:2\na:1\nc:3\n' | $bb sort -t: -k2 | $bb cut -d: -f1 | $bb tr -d '\n')" abc "sort and cut"
is "$($bb yes | $bb head -n 5000 | $bb wc -l | $bb tr -d ' ')" 5000 "yes into head"
is "$(printf 'one two\nthree\n' | $bb wc -w | $bb tr -d ' ')" 3 "wc -w"
is "$($bb seq 10 | $bb grep -c '[05]$')" 2 "grep -c"
is "$($bb seq 5 | $bb sed -n '2,4p' | $bb paste -s -d,)" 2,3,4 "sed and paste"
is "$(printf 'a\na\nb\n' | $bb uniq -c | $bb awk '{ print $1 $2 }' | $bb tr '\n' ' ')" "2a 1b " "uniq -c"
is "$(echo hello | $bb md5sum | $bb cut -d' ' -f1)" b1946ac92492d2347c6235b4d2611184 "md5sum"
is "$(echo hello | $bb sha256sum | $bb cut -c1-16)" 5891b5b522d5df08 "sha256sum"

mkdir -p tree/a/b tree/c
for i in $($bb seq 1 60); do echo "file $i" > "tree/a/b/f$i"; done
ln -s ../a/b/f1 tree/c/link
$bb tar cf tree.tar tree || fail "tar c"
mkdir out && $bb tar xf tree.tar -C out || fail "tar x"
$bb diff -r tree out/tree || fail "the unpacked tree differs"
is "$($bb readlink out/tree/c/link)" ../a/b/f1 "link in an archive"
is "$($bb find out -type f | $bb wc -l | $bb tr -d ' ')" 60 "find -type f"
is "$($bb find out -name 'f1*' | $bb xargs $bb cat | $bb wc -l | $bb tr -d ' ')" 11 "find and xargs"

$bb seq 1 20000 > numbers
$bb gzip -c numbers | $bb gunzip -c | $bb cmp - numbers || fail "gzip and gunzip"
$bb dd if=/dev/zero bs=1k count=300 2>/dev/null | $bb tee copy | $bb wc -c > count
is "$($bb tr -d ' ' < count)" 307200 "dd and tee"
is "$($bb stat -c %s copy)" 307200 "the copy of tee"
$bb dd if=numbers of=part bs=1 skip=10 count=20 2>/dev/null
is "$($bb od -An -c part | $bb wc -l | $bb tr -d ' ')" 2 "dd of a part"

is "$($bb sh -c 'echo $((6 * 7)); exit 5'; echo $?)" "42
5" "a shell in a shell"
is "$(echo 'x=1; while [ $x -lt 200 ]; do x=$((x + x)); done; echo $x' | $bb sh)" 256 "script on standard input"
$bb mkfifo pipe
$bb seq 3 > pipe & 
is "$($bb cat pipe | $bb tr -d '\n')" 123 "through a fifo"
wait
is "$($bb timeout 1 $bb sleep 20; echo $?)" 143 "timeout kills"
is "$(echo a b c | $bb xargs -n 1 $bb echo x | $bb wc -l | $bb tr -d ' ')" 3 "xargs -n"
$bb ps >/dev/null || fail "ps"
$bb df . >/dev/null || fail "df"
$bb id -u >/dev/null || fail "id"
is "$($bb env -i A=1 $bb env)" A=1 "env -i"
is "$($bb date -u -d @86400 +%Y-%m-%d)" 1970-01-02 "date"
exit 0
