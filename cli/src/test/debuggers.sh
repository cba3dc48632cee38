# Debian's strace and gdb at work.
#
# Called in the guest with the name of a check. Each prints what it got if that is not what a Linux
# prints, and ends with "done" in the end: the host looks for that word.

fail() {
    echo "FAILED: $*"
    exit 1
}

# The file "out" has a line like this.
has() {
    grep -Eq -- "$1" out || { cat out; fail "no line like $1"; }
}

cd /tmp || exit 1
export HOME=/tmp LC_ALL=C

case $1 in
strace)
    strace -f -o out sh -c 'true; ls /p' > names || fail "status $?"
    grep -qx sum names || fail "ls printed $(cat names)"
    has '^[0-9]+ +execve\("/(usr/)?bin/sh", \["sh", "-c", "true; ls /p"\]'
    has '^[0-9]+ +execve\("/(usr/)?bin/ls", \["ls", "/p"\]'
    has '^[0-9]+ +--- SIGCHLD \{si_signo=SIGCHLD, si_code=CLD_EXITED'
    has '^[0-9]+ +\+\+\+ exited with 0 \+\+\+$'
    [ "$(grep -c 'exited with 0' out)" = 2 ] || { cat out; fail "not two ends"; }
    strace -f -c -o out sh -c 'ls /p' > /dev/null || fail "status $?"
    has '^ *[0-9.]+ .* total$'
    strace -o out false
    [ $? = 1 ] || fail "the status of a program is not strace's"
    strace -o out sh -c 'kill -TERM $$'
    [ $? = 143 ] || fail "the signal of a program is not strace's"
    has 'killed by SIGTERM'
    ;;
strace_make)
    strace -f -o out make -C /p -j2 > told || fail "status $?"
    grep -qx 0ne told || fail "make printed $(cat told)"
    has 'execve\("/(usr/)?bin/sed"'
    grep -v ' resumed>' out | grep -q '+++ exited with 0 +++' || fail "nothing ended"
    ;;
strace_attach)
    # By fork: where it attaches to a parent that waits for a vfork, strace 6.1 may wait for ever
    # at its end, in Linux too. It has not begun with the child, for which the parent waits.
    sh -c 'while :; do (sleep 0.05); done' &
    pid=$!
    strace -f -p $pid -o out 2> /dev/null &
    tracer=$!
    sleep 2
    kill -INT $tracer
    wait $tracer
    has 'clock_nanosleep|pselect6|nanosleep'
    kill -0 $pid || fail "it has not survived"
    grep -q '^TracerPid:.0$' /proc/$pid/status || fail "it is traced still"
    kill $pid
    ;;
strace_inject)
    strace -o out -e inject=getppid:retval=77 python3 -c 'import os; print(os.getppid())' > told
    [ "$(cat told)" = 77 ] || fail "getppid is $(cat told)"
    strace -o out -e inject=openat:error=ENOENT:when=1000+ -e trace=openat true || fail "status"
    ;;
gdb)
    gdb -nx -batch -ex 'break square' -ex run -ex backtrace -ex finish -ex next -ex next -ex step \
        -ex 'watch total' -ex delete -ex 'print number' -ex 'info registers rip' -ex kill \
        /p/sum > out 2>&1
    has '^Breakpoint 1, square \(number=1\) at .*sum.c:5'
    has '^#1 .* add \(number=1\)'
    has '^#2 .* main \(\)'
    has '^Value returned is \$1 = 1'
    ;;
gdb_watch)
    gdb -nx -batch -ex 'break main' -ex run -ex 'watch total' -ex continue -ex continue \
        -ex 'print total' -ex continue -ex continue /p/sum > out 2>&1
    has '^Hardware watchpoint 2: total'
    has '^Old value = 0$'
    has '^New value = 1$'
    has '^New value = 5$'
    has '^\$1 = 5$'
    has '^New value = 14$'
    ;;
gdb_calls)
    gdb -nx -batch -ex 'break main' -ex run -ex 'print square(12)' -ex 'set var total = 100' \
        -ex 'hbreak square' -ex continue -ex 'delete' -ex continue /p/sum > out 2>&1
    has '^\$1 = 144$'
    has '^Hardware assisted breakpoint'
    has '^114$'
    has 'exited with code 0162'
    ;;
gdb_forks)
    gdb -nx -batch -ex 'set follow-fork-mode child' -ex 'set breakpoint pending on' \
        -ex 'catch exec' -ex run -ex continue --args /bin/sh -c '/p/sum; exit 0' > out 2>&1
    has '^14$'
    has 'exec.d /p/sum'
    ;;
gdb_threads)
    python3 -c '
import threading, time
def wait():
    while True: time.sleep(0.05)
for _ in range(3): threading.Thread(target=wait, daemon=True).start()
time.sleep(600)' &
    pid=$!
    sleep 2
    gdb -nx -batch -p $pid -ex 'info threads' -ex 'thread apply all backtrace 3' -ex 'thread 2' \
        -ex 'print $_thread' -ex detach > out 2>&1
    [ "$(grep -c 'Thread .*LWP' out)" -ge 4 ] || { cat out; fail "not four threads"; }
    has '^\[Switching to thread 2'
    has 'detached'
    kill -0 $pid || fail "it has not survived"
    kill $pid
    ;;
esac
echo done
