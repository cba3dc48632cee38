#!/usr/bin/env bash
# bash as a heavy user of processes: job control, traps, coprocesses, process substitution.
set -u
dir=${TMPDIR:-/tmp}/bash-test.$$
mkdir "$dir" && cd "$dir" || exit 1
# Not in a child: one that a signal meets before it has forgotten its parent's traps runs them.
trap '[[ $BASHPID == "$$" ]] && cd / && rm -rf "$dir"' EXIT
fail() { echo "failed: $*"; exit 1; }
is() { [[ "$1" == "$2" ]] || fail "$3: got '${1//$'\n'/ | }', not '${2//$'\n'/ | }'"; }

# Arrays of children, wait -n, and their statuses.
declare -A status
for i in 1 2 3 4 5; do (exit "$i") & status[$!]=$i; done
for pid in "${!status[@]}"; do wait "$pid"; is $? "${status[$pid]}" "wait for $pid"; done
(sleep 30) & slow=$!
# Not at once: a job that ends between bash's look at its table and its wait4 is only found when
# the next one ends (jobs.c, wait_for_any_job).
(sleep 0.3; exit 6) &
wait -n; is $? 6 "wait -n takes the first to end"
kill "$slow"; wait "$slow" 2>/dev/null; is $? 143 "a killed job"

# Job control in a script: stop, list, continue.
set -m
sleep 100 &
pid=$!
is "$(ps -o pgid= -p $pid 2>/dev/null | tr -d ' ' || echo $pid)" "$pid" "a job has a group of its own"
kill -STOP %1
for _ in $(seq 100); do [[ $(jobs -s | wc -l) == 1 ]] && break; sleep 0.05; done
is "$(jobs -s | wc -l)" 1 "stopped jobs"
bg %1 >/dev/null || fail "bg"
for _ in $(seq 100); do [[ $(jobs -r | wc -l) == 1 ]] && break; sleep 0.05; done
is "$(jobs -r | wc -l)" 1 "running jobs"
kill %1; wait %1 2>/dev/null; is $? 143 "a continued and killed job"
sleep 0.2 &
fg %+ >/dev/null || fail "fg"
(kill -STOP $BASHPID; exit 7) &
pid=$!
for _ in $(seq 100); do [[ $(jobs -s | wc -l) == 1 ]] && break; sleep 0.05; done
fg %+ >/dev/null; is $? 7 "fg of a stopped job"
set +m

# Traps.
caught=0
trap 'caught=$((caught + 1))' USR1
for _ in 1 2 3; do kill -USR1 $$; done
is $caught 3 "three signals to oneself"
(sleep 0.1; kill -USR1 $$) &
wait; [[ $? -gt 128 ]] || fail "wait is not interrupted by a trapped signal"
is $caught 4 "a signal during wait"
wait
ended=0
trap 'ended=$((ended + 1))' CHLD
for _ in 1 2 3; do /bin/true; done
trap - CHLD
((ended >= 1)) || fail "trap on CHLD"
is "$(trap 'echo exit $?' EXIT; exit 3)" "exit 3" "trap on EXIT"
is "$(bash -c 'trap "echo int; exit 9" INT; kill -INT $$; sleep 5'; echo $?)" "int
9" "trap on INT"
is "$(bash -c 'set -e; trap "echo line \$LINENO" ERR; false; echo no' 2>&1 | cut -d' ' -f1)" line "trap on ERR"

# Process substitution, coprocesses, here-strings.
is "$(cat <(echo one) <(echo two) | tr -d '\n')" onetwo "two substitutions"
diff <(seq 1000 | sort) <(seq 1000 | shuf 2>/dev/null | sort || seq 1000 | sort) >/dev/null || fail "diff of substitutions"
seq 10 > >(cat > collected); for _ in $(seq 100); do [[ -s collected ]] && break; sleep 0.05; done
is "$(tail -n 1 collected)" 10 "output substitution"
coproc worker { while read -r line; do echo "<$line>"; done; }
echo question >&"${worker[1]}"
read -r answer <&"${worker[0]}"
is "$answer" "<question>" "coprocess"
eval "exec ${worker[1]}>&-"; wait "$worker_PID"
is "$(tr a-z A-Z <<< shout)" SHOUT "here-string"

# Pipelines.
set -o pipefail
false | true | true; is $? 1 "pipefail"
set +o pipefail
seq 5 | while read -r n; do echo $n; done | tail -n 1 > last; is "$(cat last)" 5 "loop in a pipeline"
true | false | (exit 3); is "${PIPESTATUS[*]}" "0 1 3" "PIPESTATUS"
is "$(yes | head -n 3 | tr -d '\n')" yyy "SIGPIPE ends yes"
shopt -s lastpipe; echo value | read -r got; is "$got" value "lastpipe"
is "$(for i in {1..200}; do echo $i; done | grep -c .)" 200 "brace expansion"

# Time and limits.
SECONDS=0; sleep 1.1; ((SECONDS >= 1)) || fail "SECONDS"
read -r -t 0.1 nothing < <(sleep 5) && fail "read -t"
(ulimit -n 20; exec 30</dev/null) 2>/dev/null && fail "ulimit -n"
is "$(ulimit -c 0; ulimit -c)" 0 "ulimit -c"
printf -v now '%(%s)T' -1; ((now > 1600000000)) || fail "the time is $now"
mapfile -t lines < <(seq 500); is ${#lines[@]} 500 "mapfile"
exec {fd}<>both; echo text >&$fd; exec {fd}>&-; is "$(cat both)" text "a descriptor by name"
(exec -a renamed bash -c 'echo $0') | grep -q renamed || fail "exec -a"
exit 0
