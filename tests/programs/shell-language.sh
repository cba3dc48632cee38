#!/bin/sh
# The plain shell: here-documents, substitutions, redirections, subshells, traps, exit statuses.
set -u
dir=${TMPDIR:-/tmp}/shell-test.$$
mkdir "$dir" && cd "$dir" || exit 1
trap 'cd /; rm -rf "$dir"' EXIT
fail() { echo "failed: $*"; exit 1; }
is() { [ "$1" = "$2" ] || fail "$3: got '$1', not '$2'"; }

name=world
is "$(cat <<END
hello $name $((1 + 2)) $(echo sub)
END
)" "hello world 3 sub" "here-document"
is "$(cat <<'END'
no $name
END
)" 'no $name' "quoted here-document"
# One larger than a pipe holds must not block the shell.
i=0; big=
while [ $i -lt 2000 ]; do big="$big this is line $i of a long document, long enough to fill"; i=$((i + 1)); done
is "$(cat <<END | wc -c | tr -d ' '
$big
END
)" "$((${#big} + 1))" "large here-document"

echo out > f; echo more >> f
is "$(cat f)" "out
more" "redirection and appending"
( echo to-err >&2; echo to-out ) > o 2> e
is "$(cat o)$(cat e)" to-outto-err "two redirections"
( echo a; echo b >&2 ) > both 2>&1
is "$(wc -l < both | tr -d ' ')" 2 "2>&1"
exec 5> five; echo through five >&5; exec 5>&-
is "$(cat five)" "through five" "descriptor 5"
( echo x >&5 ) 2>/dev/null && fail "a closed descriptor was written"
exec 6< f; read first <&6; read second <&6; exec 6<&-
is "$first $second" "out more" "reading line by line"

false; is $? 1 "false"
(exit 37); is $? 37 "status of a subshell"
sh -c 'kill -TERM $$' 2>/dev/null; is $? 143 "death by SIGTERM"
sh -c 'kill -9 $$' 2>/dev/null; is $? 137 "death by SIGKILL"
./none 2>/dev/null; is $? 127 "missing command"
echo text > notexec; ./notexec 2>/dev/null; is $? 126 "not executable"
true | false; is $? 1 "status of a pipeline"
! false || fail "negation"
is "$(false || echo or)$(true && echo and)" orand "and-or lists"

x=1; ( x=2 ); is $x 1 "a subshell's variable"
is "$(x=5 sh -c 'echo $x')" 5 "environment of one command"
unset nothing; is "${nothing-default}${nothing:+set}" default "default value"
path=/a/b/c.tar.gz
is "${path##*/} ${path%.*} ${path%%.*} ${#path}" "c.tar.gz /a/b/c.tar /a/b/c 13" "pattern removal"
set -- one "two words" three
is "$#:$2:$*" "3:two words:one two words three" "positional parameters"
case foo.txt in *.c) fail "case" ;; *.txt) ;; *) fail "case" ;; esac
touch g1 g2 'g 3'; set -- g*; is $# 3 "globbing"

is "$(trap 'echo bye' EXIT; echo hi)" "hi
bye" "trap on exit"
is "$(sh -c 'trap "echo caught; exit 3" TERM; kill -TERM $$; echo no'; echo $?)" "caught
3" "trap on TERM"
is "$(sh -c 'trap "" TERM; kill -TERM $$; echo alive')" alive "ignored signal"
is "$(sh -c 'trap "" INT; sh -c "kill -INT \$\$; echo alive"')" alive "ignored signals are inherited"

sleep 0.1 & first=$!
(exit 9) & second=$!
wait $second; is $? 9 "wait for one"
wait $first; is $? 0 "wait for the other"
wait 2>/dev/null; is $? 0 "wait for none"
(sleep 100) & kill $!; wait $! 2>/dev/null; is $? 143 "wait for a killed one"

f() { local_result=$1; return 4; }
f value; is "$?$local_result" 4value "function"
fib() { if [ "$1" -lt 2 ]; then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
is "$(fib 9)" 34 "recursion by subshells"
umask 077; touch private; is "$(ls -l private | cut -c1-10)" -rw------- "umask"
cd /; cd "$dir" || fail "cd"
is "$(pwd)" "$dir" "pwd"
exit 0
