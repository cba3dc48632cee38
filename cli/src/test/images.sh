# What programs print that begin at images, beside what they print without.
#
# Called in the guest with the name of a check. Each prints what it expected and got if that is not
# the same, and ends with "done" in the end: the host looks for these words. The checks of what an
# image must never do are in images-never.sh.

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
    cd /tmp/job || fail "no directory"
    # Its rights, of a user who is bound by them.
    as_user() { busybox su -s /bin/sh nobody -c "cat /tmp/job/program"; }
    chmod 755 /tmp/job
    ready as_user
    chmod 700 /tmp/job/program
    as_user > /tmp/out 2>&1 && fail "a file was read that may not be read any more"
    chmod 755 /tmp/job/program
    prints "$(cat program)" as_user
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

# The descriptors of files that starts from all images get.
held() {
    cat /proc/hayate/resources/image/* | sed -n 's/^files: //p' | awk '{ sum += $1 } END { print sum + 0 }'
}

# Prints the same at each of six starts, the last three of them from an image that has files.
opens_files() {
    before=$(begun)
    files=$(held)
    expected=$("$@" 2>&1)
    for _ in 1 2 3 4 5; do
        prints "$expected" "$@"
    done
    [ "$(begun)" -gt "$before" ] || fail "$*: no start began at an image"
    [ "$(held)" -gt "$files" ] || fail "$*: its image has no files"
}

# Files that a program holds at its horizon are opened anew at each start: with their positions,
# their flags, their numbers, and shared where they were shared.
open_files() {
    mkdir -p /tmp/files/many && cd /tmp/files || fail "no directory"
    # Longer than what a shell reads at once.
    {
        echo 'echo begin $0'
        i=0
        while [ $i -lt 500 ]; do
            echo "# a line that the shell reads and does nothing for, number $i"
            i=$((i + 1))
        done
        echo 'for i in 1 2 3; do echo $i; done | wc -l'
        echo 'ls -l /proc/$$/fd 2> /dev/null | grep -c files/script'
        echo 'echo end'
    } > script
    opens_files bash script
    opens_files dash script
    [ "$(bash script | tail -n 1)" = end ] || fail "bash does not come to the end of a script"
    # Starts at the same time have positions of their own.
    for i in 1 2 3 4; do
        dash script > "out.$i" &
    done
    wait
    for i in 1 2 3 4; do
        [ "$(tail -n 1 "out.$i")" = end ] || fail "starts share a position"
    done
    echo 0123456789abcdef > text
    # Two descriptors with one position, and one with its own; numbers and flags.
    cat > shared.pl << 'END'
open(A, '<', 'text') && sysread(A, $first, 3) == 3 or die;
open(B, '<&', A) or die;
open(C, '<', 'text') && sysread(C, $other, 7) == 7 or die;
syswrite(STDOUT, "$first $other\n");
sysread(A, $second, 2); sysread(B, $third, 2); sysread(C, $fourth, 2);
print join(' ', fileno(A), fileno(B), fileno(C)), "\n$second $third $fourth\n";
END
    opens_files perl shared.pl
    [ "$(perl shared.pl | tail -n 1)" = '34 56 78' ] || fail "perl says $(perl shared.pl)"
    cat > flags.py << 'END'
import fcntl, os
a = os.open('text', os.O_RDONLY)
os.lseek(a, 5, os.SEEK_SET)
b = os.open('many', os.O_RDONLY | os.O_DIRECTORY)
os.set_inheritable(b, True)
os.dup2(a, 20, inheritable=True)
os.write(1, b'here\n')
print(a, b, [fcntl.fcntl(fd, fcntl.F_GETFD) for fd in (a, b, 20)])
print([hex(fcntl.fcntl(fd, fcntl.F_GETFL)) for fd in (a, b, 20)])
print(os.read(20, 3), os.read(a, 3), os.listdir(b), os.readlink('/proc/self/fd/20'))
END
    opens_files python3 flags.py
    # A directory in the middle of its listing: more than the C library reads at once.
    (cd many && seq -f 'a-file-with-a-name-that-is-not-short-%04g' 1500 | xargs touch)
    cat > listing.pl << 'END'
opendir(MANY, 'many') or die;
$seen{scalar readdir(MANY)} = 1 for 1 .. 5;
syswrite(STDOUT, scalar(keys %seen) . "\n");
while (my $name = readdir(MANY)) { $seen{$name} and die "$name twice"; $seen{$name} = 1 }
print scalar(keys %seen), "\n";
END
    opens_files perl listing.pl
    [ "$(perl listing.pl | tail -n 1)" = 1502 ] || fail "perl lists $(perl listing.pl)"
    # What changes is seen, and what cannot be opened any more is no file of an image.
    echo fedcba9876543210 > text
    [ "$(perl shared.pl | head -n 1)" = 'fed fedcba9' ] || fail "a file is opened as it was"
    ready perl shared.pl
    rm text
    perl shared.pl 2> err && fail "a file that is gone was opened"
    # Other things that are open are opened by each start itself.
    prints 4 perl -e 'open(R, "<", "/dev/urandom"); syswrite(STDOUT, sysread(R, $x, 4));'
    ready perl -e 'open(R, "<", "/dev/urandom"); syswrite(STDOUT, sysread(R, $x, 4));'
    prints 4 perl -e 'open(R, "<", "/dev/urandom"); syswrite(STDOUT, sysread(R, $x, 4));'
    # A directory whose file system can still be unmounted: an image keeps none in use.
    mkdir -p at && mount -t tmpfs none at && echo 'echo mounted; cat /dev/null; echo again' > at/script
    opens_files dash at/script
    umount at || fail "an image keeps the file system of a script in use"
}

# A program that prints its first random bytes (AT_RANDOM), and whether the canary and the guard of
# pointers that the C library made of them are the same.
cat > /tmp/random.pl << 'END'
open(VECTOR, '<', '/proc/self/auxv') && sysread(VECTOR, $words, 4096) or die;
my %auxiliary = unpack('Q*', $words);
open(MEMORY, '<', '/proc/self/mem') or die;
sub at { sysseek(MEMORY, $_[0], 0) && sysread(MEMORY, $bytes, $_[1]) == $_[1] or die; $bytes }
my $random = at($auxiliary{25}, 16);
my $thread = "\0" x 8;
syscall(158, 0x1003, $thread) == 0 or die;
my ($canary, $guard) = unpack('a8 a8', at(unpack('Q', $thread) + 0x28, 16));
print unpack('H*', $random), "\n";
"\0" . substr($random, 1, 7) eq $canary or die 'another canary';
substr($random, 8) eq $guard or die 'another guard';
END

# No more starts from an image share its random bytes than the machine was told: 5, and the two that
# were recorded.
share_so_often() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        got=$(perl /tmp/random.pl) || fail "perl ended with $?"
        echo "$got"
    done > /tmp/seen
    often=$(sort /tmp/seen | uniq -c | sort -rn | awk 'NR == 1 { print $1 }')
    [ "$often" -eq 7 ] || fail "$often starts had the same random bytes"
    [ "$(begun)" -ge 8 ] || fail "only $(begun) starts began at an image"
    grep -q '^starts-at-most: 5$' /proc/hayate/resources/image/* || fail "the bound is not shown"
}

# With images=fresh-random each start has random bytes of its own, with all that the C library made
# of them. A program that makes something else of random bytes begins before it draws them.
fresh_random() {
    begins_fresh() {
        before=$(begun)
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
            got=$("$@") || fail "$* ended with $?"
            echo "$got"
        done > /tmp/seen
        [ "$(sort -u /tmp/seen | wc -l)" -eq 12 ] || fail "$*: $(sort /tmp/seen | uniq -c)"
        [ "$(begun)" -gt "$((before + 3))" ] || fail "$*: only $(begun) - $before from an image"
    }
    export PERL_HASH_SEED=0
    begins_fresh perl /tmp/random.pl
    unset PERL_HASH_SEED
    begins_fresh perl /tmp/random.pl
    begins_fresh python3 -c 'print(hash("word"))'
    begins_fresh python3 -c 'import os; print(os.urandom(16).hex())'
    # They leave long jumps and exit handlers, whose pointers are hidden, as they should.
    before=$(begun)
    for _ in 1 2 3 4 5 6 7 8; do
        prints 'one 3' bash -c '(exit 3) || echo one $?'
        prints '120' dash -c 'f() { return 120; }; f || echo $?'
        prints '1 2 ' awk 'BEGIN { printf "1 "; printf "2 "; exit }'
        prints 'b a' perl -e 'END { print "a" } eval { die }; print "b "'
        prints 'done' python3 -c 'import atexit; atexit.register(print, "done")'
    done
    [ "$(begun)" -gt "$((before + 8))" ] || fail "only $(begun) - $before starts from an image"
    grep -q '^random: fresh$' /proc/hayate/resources/image/* || fail "it is not shown"
}

# Starts a script of Perl in the background, as all starts of it that are to be the same command: a
# shell has such ignore signals, and gives them another input.
behind() {
    perl "$1" > /tmp/word 2>&1 &
}

# What it prints.
says() {
    behind "$1"
    wait $!
    cat /tmp/word
}

# What another process writes into a program while it is recorded, or what limits it gives it, is
# part of no image.
from_outside() {
    cat > /tmp/work.pl << 'END'
my $word = join('', 'be', 'fore');
for (my $i = 0; $i < 2_000_000; $i++) { }
syswrite(STDOUT, "$word\n");
END
    cat > /tmp/write.pl << 'END'
my ($process, $done) = ($ARGV[0], 0);
for (my $try = 0; $try < 1000 && !$done; $try++) {
    open(my $maps, '<', "/proc/$process/maps") or exit 1;
    my ($from, $to) = map { /^(\w+)-(\w+) .*\[heap\]/ ? (hex $1, hex $2) : () } <$maps>;
    open(my $memory, '+<', "/proc/$process/mem") or exit 1;
    my $heap;
    $to && sysseek($memory, $from, 0) && sysread($memory, $heap, $to - $from) or next;
    while ($heap =~ /before/g) {
        sysseek($memory, $from + $-[0], 0) && syswrite($memory, 'after ') and $done = 1;
    }
}
exit !$done;
END
    cat > /tmp/limit.pl << 'END'
for (my $i = 0; $i < 2_000_000; $i++) { }
my $limit = "\0" x 16;
syscall(97, 7, $limit) == 0 or die;
syswrite(STDOUT, unpack('Q', $limit) . "\n");
END
    ulimit -S -n 500
    prints before says /tmp/work.pl
    prints 500 says /tmp/limit.pl
    for _ in 1 2; do
        behind /tmp/work.pl
        perl /tmp/write.pl $! || fail "nothing was written"
        wait
        [ "$(cat /tmp/word)" = 'after ' ] || fail "it was not written into"
        behind /tmp/limit.pl
        until grep -q '^perl$' /proc/$!/comm; do :; done
        prlimit --pid $! --nofile=77: || fail "the limit cannot be changed"
        wait
        [ "$(cat /tmp/word)" = 77 ] || fail "a limit of 77 is $(cat /tmp/word)"
    done
    before=$(begun)
    for _ in 1 2 3 4 5 6; do
        prints before says /tmp/work.pl
        prints 500 says /tmp/limit.pl
    done
    [ "$(begun)" -ge $((before + 6)) ] || fail "only $(begun) - $before starts from an image"
}

# The number of starts that took the space of an earlier start.
inherited() {
    cat /proc/hayate/resources/image/* | awk '$1 == "inherited:" { sum += $2 } END { print sum + 0 }'
}

# The frames that are free when nothing is kept.
free_frames() {
    echo drop > /proc/hayate/pools
    echo 3 > /proc/sys/vm/drop_caches
    sed -n 's/^free //p' /proc/hayate/frames
}

# The programs that leave their spaces, in a directory of their own.
make_leavers() {
    mkdir -p "$1" && cd "$1" || fail "no directory"
    cat > read.py << 'END'
import sys
sys.stdout.write("")
seen = globals().setdefault("seen", [])
seen.append(open("word").read().strip())
print(seen)
END
    cat > fill.py << 'END'
import sys
sys.stdout.flush()
data = open("word").read().strip()
blocks = [bytearray(4096) for _ in range(128)]
assert not any(any(block) for block in blocks)
for block in blocks:
    block[:] = (data[:1] * 4096).encode()
print(sum(map(len, blocks)))
END
    cat > kill.py << 'END'
import os, signal
open("word").read()
os.kill(os.getpid(), signal.SIGKILL)
END
    cat > exec.py << 'END'
import os
open("word").read()
os.execv("/bin/echo", ["echo", "other"])
END
    cat > threads.py << 'END'
import threading
done = []
threads = [threading.Thread(target=done.append, args=(i,)) for i in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done), sorted(done))
END
}

# One round of commands that write much, little, what others do not, and end in other ways.
leave_spaces() {
    for word in one two three; do
        echo "$word" > word
        prints "$word" bash -c 'read -r x < word; echo $x'
        prints "$word" perl -e 'open F, "word"; print <F>'
        prints "['$word']" python3 read.py
        prints "$word $word" sh -c 'x=$(cat word); (y=$x; echo $y $x)'
        prints 524288 python3 fill.py
    done
    python3 kill.py
    [ $? -eq 137 ] || fail "python3 was not killed"
    prints other python3 exec.py
    prints '3 [0, 1, 2]' python3 threads.py
}

# Starts leave their spaces to later starts, without what they wrote, and no memory is lost by it.
heirs() {
    make_leavers /tmp/leave
    for _ in 1 2 3 4; do
        leave_spaces
    done
    taken=$(inherited)
    [ "$taken" -ge "${1:-10}" ] || fail "only $taken starts took the space of an earlier one"
    before=$(free_frames)
    for _ in 1 2 3; do
        leave_spaces
    done
    after=$(free_frames)
    [ "$after" -ge $((before - 200)) ] || fail "of $before free frames $after are left"
    # shellcheck disable=SC2046
    set -- $(sed -n 's/^image //p' /proc/hayate/pools)
    [ "$6" -eq 0 ] || fail "$6 bytes are kept that were dropped"
}

# Two loops of them at once, while what is kept is dropped now and then.
heirs_at_once() {
    for loop in 1 2; do
        (
            make_leavers /tmp/leave-$loop
            for _ in 1 2 3 4; do
                leave_spaces
            done
        ) &
        eval "loop_$loop=\$!"
    done
    for _ in 1 2 3 4 5 6; do
        sleep 2
        echo drop image > /proc/hayate/pools
    done
    wait "$loop_1" || fail "the first loop"
    wait "$loop_2" || fail "the second loop"
}

# What each process is and waits for, when something hangs.
who_waits() {
    for process in /proc/[0-9]*; do
        echo "$process: $(tr '\0' ' ' < "$process/cmdline")"
        grep -E '^(State|PPid|SigPnd|ShdPnd|SigBlk|SigCgt):' "$process/status" | tr '\t\n' ' '
        ls -l "$process/fd" | sed -n 's/.* \([0-9]* -> .*\)/\1/p' | tr '\n' ' '
        echo
    done
}

# Shows what waits if a round of pipelines takes longer than a minute, and ends it.
watch_rounds() {
    before='' same=0
    while [ ! -e /tmp/over ]; do
        sleep 2
        now=$(cat /tmp/round)
        [ "$now" = "$before" ] && same=$((same + 1)) || same=0
        before=$now
        [ $same -lt 30 ] && continue
        who_waits
        kill -KILL "${now##* }"
        same=0
    done
}

# Shells that begin at one image, with pipelines in the background, come to their end: no end of a
# pipe stays open in an image or a recording, and nobody misses the end of a child. $1 is how often.
pipelines() {
    {
        seq 11 18
        for _ in 1 2 3 4 5 6 7 8; do echo "ab c"; done
    } | sort > /tmp/expected
    script='for i in 1 2 3 4 5 6 7 8; do (expr $i + 10 | cat) & done
for i in 1 2 3 4 5 6 7 8; do (echo a b c | tr -d "\n" | sed "s/a b/ab/" | grep .) & done
for i in 1 2 3 4; do (true | true) & done
wait'
    echo > /tmp/round
    watch_rounds &
    count=0
    while [ $count -lt "$1" ]; do
        count=$((count + 1))
        for shell in dash bash "busybox sh"; do
            # shellcheck disable=SC2086
            $shell -c "$script" > /tmp/out 2>&1 &
            echo "$count $shell $!" > /tmp/round
            wait $! || fail "$shell ended with $? in round $count"
            sort /tmp/out | cmp -s - /tmp/expected || fail "$shell, round $count: $(sort /tmp/out)"
        done
        # New images, while some of the old are in use.
        [ $((count % 7)) -ne 0 ] || echo drop image > /proc/hayate/pools
    done
    touch /tmp/over
    [ "$(begun)" -ge $(($1 * 8)) ] || fail "only $(begun) starts began at an image"
}
