# What programs print that begin at images, beside what they print without.
#
# Called in the guest with the name of a check. Each prints what it expected and got if that is not
# the same, and ends with "done" in the end: the host looks for these words.

fail() {
    echo "FAILED: $*"
    exit 1
}

# The number of starts that began at an image, of all commands.
begun() {
    sed -n 's/^image [0-9]* \([0-9]*\) .*/\1/p' /proc/hayate/pools
}

# Runs a command five times, so that the fifth begins at an image if there is one.
ready() {
    for _ in 1 2 3 4 5; do
        "$@" > /tmp/out 2>&1
    done
}

# Runs a command and compares what it prints.
prints() {
    expected=$1
    shift
    got=$("$@" 2>&1)
    [ "$got" = "$expected" ] || fail "$*: expected '$expected', got '$got'"
}

# Every command prints the same at each of six starts, the last three of them from an image.
same_output() {
    mkdir -p /tmp/work && cd /tmp/work || fail "no directory"
    echo 'print(sum(range(10)))' > sum.py
    printf 'b\na\nc\n' > lines
    cat > commands << 'END'
bash -c 'echo $((6 * 7)) $# "$1"' name argument
dash -c 'for i in 1 2 3; do echo $i; done'
sh -c 'cd /usr; pwd; echo $OLDPWD'
busybox sh -c 'echo $0 $1' zero one
perl -e 'print join(",", map { $_ * 2 } 1 .. 5), "\n"'
perl -MPOSIX -e 'print floor(3.7), " ", strftime("%Y", gmtime(0)), "\n"'
python3 -c 'print("hello")'
python3 -c 'import json, re, sys; print(json.dumps({"a": sys.argv}), re.sub("a", "b", "banana"))' x y
python3 sum.py
python3 -c 'import os; print(sorted(os.listdir(".")), os.getcwd())'
python3 -S -c 'import sys; print(sys.flags.no_site)'
awk 'BEGIN { for (i = 0; i < 3; i++) print i * i }'
sed -n 2p lines
sort lines
ls -a
cat lines
wc -l lines
env
id
readlink /proc/self/exe
head -c 3 lines
expr 1 + 2
test -f lines
printf '%s-%s\n' a b
END
    while read -r command; do
        expected=$(eval "$command" 2>&1)
        for _ in 1 2 3 4 5; do
            got=$(eval "$command" 2>&1)
            [ "$got" = "$expected" ] || fail "$command: first '$expected', then '$got'"
        done
    done < commands
    [ "$(begun)" -ge 30 ] || fail "only $(begun) starts began at an image"
}

# A start sees every change of what its image depends on.
changes_are_seen() {
    mkdir -p /tmp/job/lib && cd /tmp/job || fail "no directory"
    export PYTHONPATH=/tmp/job/lib
    before=$(begun)
    echo 'VALUE = 1' > lib/value.py
    export PYTHONDONTWRITEBYTECODE=1
    show='import value; print(value.VALUE)'
    ready python3 -c "$show"
    # In place, by rename, by removal and return, through a link, by another entry of the path.
    echo 'VALUE = 22' > lib/value.py
    prints 22 python3 -c "$show"
    ready python3 -c "$show"
    echo 'VALUE = 333' > lib/new && mv lib/new lib/value.py
    prints 333 python3 -c "$show"
    ready python3 -c "$show"
    printf 'VALUE = 4444\n' | dd of=lib/value.py conv=notrunc 2> /tmp/dd
    prints 4444 python3 -c "$show"
    ready python3 -c "$show"
    rm lib/value.py && mkdir lib/value && echo 'VALUE = 5' > lib/value/__init__.py
    prints 5 python3 -c "$show"
    ready python3 -c "$show"
    mv lib other && mkdir lib && echo 'VALUE = 6' > lib/value.py
    prints 6 python3 -c "$show"
    ready python3 -c "$show"
    mount -t tmpfs none lib && echo 'VALUE = 7' > lib/value.py
    prints 7 python3 -c "$show"
    ready python3 -c "$show"
    umount lib
    prints 6 python3 -c "$show"
    [ "$(begun)" -gt "$before" ] || fail "no start began at an image"
    # What was absent: a module that hides one of the library's, a file of the shell.
    ready python3 -c 'import this_is_not_there'
    echo 'print("there")' > lib/this_is_not_there.py
    prints there python3 -c 'import this_is_not_there'
    export BASH_ENV=/tmp/job/environment
    ready bash -c 'echo $WORD'
    echo 'WORD=word' > environment
    prints word bash -c 'echo $WORD'
    # The program itself, its arguments, its environment, its directory, its umask, its limits.
    printf '#!/bin/sh\necho one\n' > program && chmod +x program
    ready ./program
    printf '#!/bin/sh\necho two\n' > program
    prints two ./program
    ready sh -c 'umask'
    umask 077
    prints 0077 sh -c 'umask'
    umask 022
    ready bash -c 'ulimit -n'
    ulimit -n 99
    prints 99 bash -c 'ulimit -n'
    export COLOUR=red
    ready bash -c 'echo $COLOUR'
    COLOUR=blue
    prints blue bash -c 'echo $COLOUR'
    ready bash -c 'echo $PWD'
    cd /usr && prints /usr bash -c 'echo $PWD'
    ready cat /tmp/job/program
    chmod 000 /tmp/job/program
}

# What is mounted or unmounted is a change, and a command that was started in a file system does not
# keep it from being unmounted.
mounts() {
    mkdir -p /tmp/mounts/at && cd /tmp/mounts || fail "no directory"
    export PYTHONPATH=/tmp/mounts/at PYTHONDONTWRITEBYTECODE=1
    show='import value; print(value.VALUE)'
    echo 'VALUE = 1' > at/value.py
    before=$(begun)
    ready python3 -c "$show"
    ready python3 -c "$show"
    [ "$(begun)" -gt "$before" ] || fail "python does not begin at an image"
    mkdir other && echo 'VALUE = 2' > other/value.py && mount --bind other at
    prints 2 python3 -c "$show"
    ready python3 -c "$show"
    umount at || fail "the directory is in use"
    prints 1 python3 -c "$show"
    mount -t tmpfs none at && cd at || fail "nothing is mounted"
    cp /bin/true mine
    ready /bin/true
    ready ./mine
    cd .. && umount at || fail "a command keeps the file system in use"
}

# A process that begins at an image ends as it should, also where its image's next act is its end.
statuses() {
    for _ in 1 2 3 4 5 6; do
        sh -c 'exit 7'
        [ $? -eq 7 ] || fail "sh did not end with 7"
        false && fail "false ended with 0"
        true || fail "true did not end with 0"
        bash -c 'exit 300'
        [ $? -eq 44 ] || fail "bash did not end with 44"
        python3 -c 'import sys; sys.exit(3)'
        [ $? -eq 3 ] || fail "python3 did not end with 3"
        perl -e 'exit 9'
        [ $? -eq 9 ] || fail "perl did not end with 9"
        bash -c 'kill -9 $$'
        [ $? -eq 137 ] || fail "bash was not killed"
        true | true | cat || fail "a pipeline failed"
        (exec true) || fail "exec of true failed"
        (trap '' CHLD && true && python3 -c 'import subprocess; subprocess.run(["true"])') ||
            fail "a child that nobody waits for"
        true &
        wait $! || fail "true in the background"
    done
}

# A program sees its own number, its parent's, and the time as they are.
numbers_and_time() {
    ready bash -c 'echo $$'
    for _ in 1 2 3; do
        bash -c 'echo $$ $PPID; read -r own _ < /proc/self/stat; echo $own' > /tmp/numbers &
        wait $!
        { read -r own parent; read -r seen; } < /tmp/numbers
        [ "$own" = "$!" ] || fail "process $! takes itself for $own"
        [ "$own" = "$seen" ] || fail "process $seen takes itself for $own"
        [ "$parent" = "$$" ] || fail "the child of $$ has parent $parent"
    done
    for command in "perl -e 'print \$^T'" "bash -c 'printf %s \$EPOCHSECONDS'" \
        "python3 -c 'import time; print(int(time.time()), end=\"\")'" \
        "awk 'BEGIN { srand(); printf \"%d\", srand() }'"; do
        for _ in 1 2 3 4 5 6 7 8; do
            before=$(date +%s)
            got=$(eval "$command")
            after=$(date +%s)
            [ "$got" -ge "$before" ] && [ "$got" -le "$after" ] ||
                fail "$command: $got is not between $before and $after"
        done
    done
    for _ in 1 2 3 4 5 6 7 8 9; do
        bash -c 'echo $RANDOM'
    done | sort -u > /tmp/random
    [ "$(wc -l < /tmp/random)" -ge 5 ] || fail "bash draws the same random numbers"
    for _ in 1 2 3 4 5 6; do
        got=$(bash -c 'sleep 1; echo $SECONDS')
        [ "$got" -ge 1 ] && [ "$got" -le 9 ] || fail "bash has run for $got seconds"
    done
    python3 -c 'import threading, time
start = time.monotonic()
thread = threading.Thread(target=time.sleep, args=(0.1,))
thread.start()
thread.join()
assert 0.1 <= time.monotonic() - start < 9' || fail "a thread did not sleep as it should"
}

# An image of one user's start serves no other user.
users() {
    mkdir -p /tmp/users && chmod 755 /tmp/users && cd /tmp/users || fail "no directory"
    echo 'SECRET = "secret"' > secret.py && chmod 600 secret.py
    export PYTHONPATH=/tmp/users PYTHONDONTWRITEBYTECODE=1
    cat > show.py << 'END'
import os
try:
    import secret
    print(os.getuid(), secret.SECRET)
except PermissionError:
    print(os.getuid(), "refused")
except ImportError:
    print(os.getuid(), "refused")
END
    for _ in 1 2 3 4 5; do
        prints '0 secret' python3 show.py
        prints '65534 refused' busybox su -s /bin/sh nobody -c \
            'PYTHONPATH=/tmp/users python3 /tmp/users/show.py'
    done
}

# While one loop changes a module by rename, starts beside it see the value before or the one after,
# never an older one.
storm() {
    mkdir -p /tmp/storm && cd /tmp/storm || fail "no directory"
    export PYTHONPATH=/tmp/storm PYTHONDONTWRITEBYTECODE=1
    echo 'VALUE = 0' > value.py && echo 0 > known
    (
        i=0
        while [ -e known ] && [ $i -lt "$1" ]; do
            i=$((i + 1))
            echo "VALUE = $i" > new && mv new value.py
            echo $i > now && mv now known
            [ $((i % 4)) -ne 0 ] || sleep "$2"
        done
        touch over
    ) &
    starts=0
    while [ ! -e over ]; do
        read -r least < known
        got=$(python3 -S -c 'import value; print(value.VALUE)')
        read -r most < known
        most=$((most + 1))
        [ "$got" -ge "$least" ] && [ "$got" -le "$most" ] ||
            fail "a start saw $got, which is not between $least and $most"
        starts=$((starts + 1))
    done
    wait
    echo "$starts starts, $(begun) from an image"
}

"$@"
echo done
