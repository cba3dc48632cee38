
# What an image must never do: checks that go with images.sh.

# What a command prints without images.
without() {
    echo full > /proc/hayate/policy
    eval "$1" 2>&1
    echo full+image > /proc/hayate/policy
}

# Two commands, given as text, print different things, and each prints at six starts what it prints
# without images. They are started in turn: neither may begin at the image of the other.
beside() {
    one=$(without "$1") && two=$(without "$2") || true
    [ "$one" != "$two" ] || fail "$1 and $2 print the same: $one"
    for _ in 1 2 3 4 5 6; do
        got=$(eval "$1" 2>&1)
        [ "$got" = "$one" ] || fail "$1: expected '$one', got '$got'"
        got=$(eval "$2" 2>&1)
        [ "$got" = "$two" ] || fail "$2: expected '$two', got '$got'"
    done
}

# Another environment of the dynamic linker, other limits and another mode are another command, and
# the last is never recorded.
as_if_there_were_none() {
    mkdir -p /tmp/libraries && cp /lib/x86_64-linux-gnu/libc.so.6 /tmp/libraries || fail "no library"
    before=$(begun)
    beside "bash -c 'echo done'" "LD_PRELOAD=/none.so bash -c 'echo done'"
    beside "cat /proc/self/maps | grep -o '/[^ ]*libc.so.6' | sort -u" \
        "LD_LIBRARY_PATH=/tmp/libraries cat /proc/self/maps | grep -o '/[^ ]*libc.so.6' | sort -u"
    beside "perl -e 'print 1'" "LD_TRACE_LOADED_OBJECTS=1 perl -e 'print 1' | sed 's/ (0x.*//'"
    beside "/bin/true" "LD_SHOW_AUXV=1 /bin/true | cut -d : -f 1"
    beside "bash -c 'ulimit -n'" "(ulimit -n 99; bash -c 'ulimit -n')"
    beside "bash -c 'ulimit -s'" "(ulimit -s 1000; bash -c 'ulimit -s')"
    large='python3 -c "print(len(bytearray(300000000)))" 2>&1 | tail -n 1'
    beside "$large" "(ulimit -v 200000; $large)"
    long='python3 -c "open(\"/tmp/long\", \"w\").write(8192 * \"x\"); print(1)" 2>&1 | tail -n 1'
    beside "$long" "(ulimit -f 1; $long)"
    [ "$(begun)" -ge $((before + 16)) ] || fail "only $(begun) - $before starts from an image"
    # In supervisor mode, from its first instruction on.
    show='grep ^Mode: /proc/self/status'
    switched=$(without "mode run -- $show")
    [ "$switched" = "$(printf 'Mode:\tsupervisor')" ] || fail "the mode is $switched"
    mode run -- true || fail "no mode"
    ready $show
    for _ in 1 2 3 4 5 6; do
        prints "$(printf 'Mode:\tuser')" $show
        # The program that switches may begin at an image; the one that is switched may not.
        prints "$switched" mode run -- $show
        prints 4 mode run -- perl -e 'print 4'
    done
    cat /proc/hayate/resources/image/* | grep -q '^arguments: perl.x00-e.x00print 4$' &&
        fail "a program in supervisor mode was noted"
    # Switched while it is recorded.
    cat > /tmp/switched.pl << 'END'
for (my $i = 0; $i < 2_000_000; $i++) { }
open(STATUS, '<', '/proc/self/status') or die;
print grep { /^Mode:/ } <STATUS>;
END
    user=$(printf 'Mode:\tuser')
    prints "$user" says /tmp/switched.pl
    for _ in 1 2; do
        behind /tmp/switched.pl
        until grep -q '^perl$' /proc/$!/comm; do :; done
        mode supervisor $! || fail "it cannot be switched"
        wait
        [ "$(cat /tmp/word)" = "$switched" ] || fail "a switched program says $(cat /tmp/word)"
    done
    for _ in 1 2 3 4 5 6; do
        prints "$user" says /tmp/switched.pl
    done
}

# The starts that began at images of commands that have this pattern.
begun_of() {
    # shellcheck disable=SC2046
    set -- $(sed -n 's/^starts: //p' $(grep -l "$1" /proc/hayate/resources/image/[0-9]*) /dev/null)
    sum=0
    for starts; do sum=$((sum + starts)); done
    echo $sum
}

# Starts a command of bash with this word until a start of it begins at an image: its two recordings
# may make seeds of the time that nobody can tell, and then there are two more.
begin_at_last() {
    tries=0
    until [ "$(begun_of "$mine")" -gt 0 ]; do
        prints 42 bash -c 'echo $((6 * 7))' "$1"
        tries=$((tries + 1))
        [ $tries -lt 60 ] || fail "bash does not begin at an image"
    done
}

# Whether a recording of a command with the first word came to nothing, for the reason.
came_to_nothing() {
    # shellcheck disable=SC2046
    grep -q "^reason: $2\$" $(grep -l "$1" /proc/hayate/resources/image/[0-9]*) /dev/null
}

# A program that is traced from its beginning starts as if there were no images.
debugged() {
    mine='^arguments: bash.*x00debugged$'
    cat > /tmp/trace.pl << 'END'
# Asks to be traced and executes a command; its parent lets it go on at each stop (ptrace(2)).
my $child = fork() // die;
if (!$child) {
    syscall(101, 0, 0, 0, 0) == 0 or die;
    exec @ARGV or die;
}
my $status = pack('l', 0);
while (syscall(61, $child, $status, 0, 0) == $child) {
    my $now = unpack('l', $status);
    ($now & 0xff) == 0x7f or exit($now >> 8);
    syscall(101, 7, $child, 0, 0) == 0 or die;
}
die;
END
    cat > /tmp/attach.pl << 'END'
# Attaches to a process, waits for it to stop, and lets it go.
my $process = 0 + $ARGV[0];
my $status = pack('l', 0);
syscall(101, 16, $process, 0, 0) == 0 && syscall(61, $process, $status, 0, 0) == $process or die;
unpack('l', $status) == 0x137f or die 'status ' . unpack('l', $status);
syscall(101, 17, $process, 0, 0) == 0 or die;
END
    # Others of the same command begin at an image before, between and after.
    begin_at_last debugged
    for _ in 1 2 3; do
        before=$(begun_of "$mine")
        prints 42 perl /tmp/trace.pl bash -c 'echo $((6 * 7))' debugged
        [ "$(begun_of "$mine")" -eq "$before" ] || fail "a traced program began at an image"
        prints 42 bash -c 'echo $((6 * 7))' debugged
        [ "$(begun_of "$mine")" -eq $((before + 1)) ] || fail "no start began at the image"
    done
    # One that only ever was traced is not noted.
    for _ in 1 2 3 4 5; do
        prints 42 perl /tmp/trace.pl bash -c 'echo $((6 * 7))' always-debugged
    done
    cat /proc/hayate/resources/image/* | grep -q '^arguments: bash.*always-debugged' &&
        fail "a traced program was noted"
    # Traced while it is recorded, for the first and for the second time.
    cat > /tmp/attached.pl << 'END'
my $word = join('', 'be', 'fore');
for (my $i = 0; $i < 2_000_000; $i++) { }
syswrite(STDOUT, "$word\n");
END
    prints before says /tmp/attached.pl
    for first in no yes no yes; do
        [ $first = no ] || prints before says /tmp/attached.pl
        behind /tmp/attached.pl
        until grep -q '^perl$' /proc/$!/comm; do :; done
        perl /tmp/attach.pl $! || fail "it cannot be traced"
        wait $! || fail "it ended with $?"
        [ "$(cat /tmp/word)" = before ] || fail "it says $(cat /tmp/word)"
        came_to_nothing attached.pl 'it is traced' || fail "a traced program was recorded"
    done
    for _ in 1 2 3 4 5 6; do
        prints before says /tmp/attached.pl
    done
    [ "$(begun_of attached.pl)" -gt 0 ] || fail "no start began at an image"
}

# strace shows the whole start-up of a program, whatever images there are of the command.
straced() {
    mine='^arguments: bash.*x00straced$'
    strace="strace -f -o /tmp/calls bash -c 'echo \$((6 * 7))' straced"
    opened=$(without "$strace > /tmp/out; grep -c openat /tmp/calls")
    [ "$opened" -ge 3 ] || fail "strace sees $(cat /tmp/calls)"
    begin_at_last straced
    for _ in 1 2 3 4 5; do
        for _ in 1 2 3; do
            prints 42 bash -c 'echo $((6 * 7))' straced
        done
        before=$(begun_of "$mine")
        prints 42 strace -f -o /tmp/calls bash -c 'echo $((6 * 7))' straced
        [ "$(grep -c openat /tmp/calls)" -eq "$opened" ] || fail "strace sees $(cat /tmp/calls)"
        [ "$(begun_of "$mine")" -eq "$before" ] || fail "a traced program began at an image"
    done
    [ "$before" -ge 9 ] || fail "only $before starts began at the image"
}

# A program that begins with a filter of system calls (seccomp(2)) starts as if there were no
# images, and one that makes a filter itself has no image behind that.
filtered() {
    mine='^arguments: bash.*x00filtered$'
    cat > /tmp/filter.pl << 'END'
# Executes a command with a filter that allows all calls but uname, which fails with 99.
my @filter = (
    [0x20, 0, 0, 0], [0x15, 0, 1, 63], [0x06, 0, 0, 0x00050063], [0x06, 0, 0, 0x7fff0000]);
my $code = join('', map { pack('S C C L', @$_) } @filter);
my $program = pack('S x6 P', scalar(@filter), $code);
syscall(157, 38, 1, 0, 0, 0) == 0 or die "no new privileges: $!";
syscall(157, 22, 2, $program, 0, 0) == 0 or die "no filter: $!";
exec @ARGV or die if @ARGV;
my $names = "\0" x 390;
print syscall(63, $names) == 0 ? "named\n" : 0 + $! . "\n";
END
    begin_at_last filtered
    for _ in 1 2 3 4 5; do
        before=$(begun_of "$mine")
        prints 42 perl /tmp/filter.pl bash -c 'echo $((6 * 7))' filtered
        [ "$(begun_of "$mine")" -eq "$before" ] || fail "a filtered program began at an image"
        prints 42 bash -c 'echo $((6 * 7))' filtered
        [ "$(begun_of "$mine")" -eq $((before + 1)) ] || fail "no start began at the image"
        # What the filter refuses is refused.
        prints 99 perl /tmp/filter.pl
        prints "uname: cannot get system name: Cannot assign requested address" \
            perl /tmp/filter.pl uname
        prints 42 perl /tmp/filter.pl bash -c 'echo $((6 * 7))' always-filtered
    done
    [ "$(begun_of /tmp/filter.pl)" -gt 0 ] || fail "perl does not begin at an image"
    cat /proc/hayate/resources/image/* | grep -q '^arguments: bash.*always-filtered' &&
        fail "a filtered program was noted"
    prints "$(cat /proc/sys/kernel/ostype)" uname
}

# With all system calls traced there are none.
traced() {
    for _ in 1 2 3 4 5 6; do
        prints 42 bash -c 'echo $((6 * 7))'
    done
    [ "$(begun)" -eq 0 ] || fail "$(begun) starts began at an image"
}

# A program that becomes another user is never noted, whoever starts it.
set_user_id() {
    mkdir -p /tmp/set && chmod 755 /tmp/set && cd /tmp/set || fail "no directory"
    cp /usr/bin/id mine && chown 1000:1000 mine && chmod 6755 mine
    as() { busybox su -s /bin/sh nobody -c "$1"; }
    before=$(begun)
    for _ in 1 2 3 4 5 6; do
        prints 1000 ./mine -u
        prints 1000 as '/tmp/set/mine -u'
        prints 65534 as 'id -u'
    done
    [ "$(begun)" -gt "$before" ] || fail "no start began at an image"
    cat /proc/hayate/resources/image/* | grep -q '^name: .*/mine$' && fail "it was noted"
    # Until the bits are gone, and from when they are there again.
    chmod 755 mine
    for _ in 1 2 3 4 5 6; do
        prints 0 ./mine -u
    done
    cat /proc/hayate/resources/image/* | grep -q '^name: .*/mine$' || fail "it was not noted"
    chmod 6755 mine && chown 1000:1000 mine && chmod 6755 mine
    prints 1000 ./mine -u
    prints 1000 as '/tmp/set/mine -u'
}

# A command prints the same at each of six starts, the last three of them from an image if it has
# one.
prints_again() {
    expected=$1
    shift
    for _ in 1 2 3 4 5 6; do
        prints "$expected" "$@"
    done
}

# access(2) answers for the real user, who comes to other directories than the effective one.
real_user() {
    mkdir -p /tmp/rights/mine && cd /tmp/rights || fail "no directory"
    chmod 755 . && chmod 700 mine
    cat > access.pl << 'END'
my $path = '/tmp/rights/mine/file';
my $answer = syscall(21, $path, 4) == 0 ? 0 : 0 + $!;
syswrite(STDOUT, "$answer\n");
END
    echo '$> = 65534; exec "/usr/bin/perl", "/tmp/rights/access.pl" or die' > other.pl
    for _ in 1 2; do
        prints_again 2 perl other.pl
        touch mine/file
        prints_again 0 perl other.pl
        rm mine/file
        prints 2 perl other.pl
    done
    [ "$(begun_of rights/access.pl)" -gt 0 ] || fail "no start began at an image"
    # The other way round: the real user may not come to it.
    touch mine/file && cp /usr/bin/perl ./perl && chmod 4755 ./perl
    cat > real.pl << 'END'
delete @ENV{qw(PATH IFS CDPATH ENV BASH_ENV)};
exec '/usr/bin/perl', '/tmp/rights/access.pl' or die;
END
    as() { busybox su -s /bin/sh nobody -c '/tmp/rights/perl /tmp/rights/real.pl'; }
    prints_again 13 as
    chmod 755 mine && chmod 644 mine/file
    prints_again 0 as
    chmod 600 mine/file
    prints 13 as
}

# How much room a file system has is told as it is.
room() {
    mkdir -p /tmp/room && mount -t tmpfs none /tmp/room && cd /tmp/room || fail "nothing is mounted"
    touch file other
    cat > /tmp/by-path.pl << 'END'
my ($path, $room) = ('/tmp/room', "\0" x 120);
syscall(137, $path, $room) == 0 or die;
syswrite(STDOUT, join(' ', (unpack('q*', $room))[2, 3, 4]) . "\n");
END
    cat > /tmp/by-descriptor.pl << 'END'
my $room = "\0" x 120;
open(F, '<', '/tmp/room/file') && syscall(138, fileno(F), $room) == 0 or die;
syswrite(STDOUT, join(' ', (unpack('q*', $room))[2, 3, 4]) . "\n");
END
    for _ in 1 2 3; do
        for script in /tmp/by-path.pl /tmp/by-descriptor.pl; do
            before=$(perl $script)
            prints_again "$before" perl $script
            # Nothing else that the script sees is changed.
            dd if=/dev/zero of=other bs=64k count=1 oflag=append conv=notrunc 2> /tmp/dd ||
                fail "no room"
            after=$(perl $script)
            [ "$after" != "$before" ] || fail "$script tells what room there was"
        done
    done
    [ "$(begun_of by-descriptor.pl)" -gt 0 ] || fail "no start began at an image"
}

# A file system that is mounted with other words is another one.
remounted() {
    mkdir -p /tmp/again && mount -t tmpfs none /tmp/again || fail "nothing is mounted"
    cp /bin/true /tmp/again/file
    cat > /tmp/may.pl << 'END'
my $path = '/tmp/again/file';
my @answers = map { syscall(21, $path, $_) == 0 ? 0 : 0 + $! } (1, 2);
syswrite(STDOUT, "@answers\n");
END
    for _ in 1 2; do
        prints_again '0 0' perl /tmp/may.pl
        mount -o remount,ro /tmp/again || fail "it cannot be made read-only"
        prints_again '0 30' perl /tmp/may.pl
        mount -o remount,rw,noexec /tmp/again || fail "it cannot be made noexec"
        prints_again '13 0' perl /tmp/may.pl
        mount -o remount,rw,exec /tmp/again || fail "it cannot be made as it was"
    done
    [ "$(begun_of may.pl)" -gt 0 ] || fail "no start began at an image"
}

# What is found from a directory that a program inherited is found in that directory.
inherited_directories() {
    mkdir -p /tmp/from/one /tmp/from/two && cd /tmp/from || fail "no directory"
    echo one > one/word && echo two > two/word && touch two/more
    cat > at.pl << 'END'
my $name = 'word';
my $file = syscall(257, 3, $name, 0);
open(WORD, "<&=$file") && sysread(WORD, $word, 9) or die;
$name = 'more';
my $status = "\0" x 144;
my @more = (syscall(269, 3, $name, 0), syscall(262, 3, $name, $status, 0));
syswrite(STDOUT, $word . "@more\n");
END
    for _ in 1 2 3 4 5 6; do
        got=$(perl at.pl 3< one)
        [ "$got" = "$(printf 'one\n-1 -1')" ] || fail "in one it finds $got"
    done
    got=$(perl at.pl 3< two)
    [ "$got" = "$(printf 'two\n0 0')" ] || fail "in two it finds $got"
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

# Starts from one image that live at the same time write to all of its pages, and each sees what it
# wrote itself.
written_pages() {
    mkdir -p /tmp/good
    cat > /tmp/pages.py << 'END'
import os, sys, time
pages = [bytearray(b"image" * 820) for _ in range(256)]
number = [7, 7.5, "seven"]
os.write(1, b"")
own = b"%08d" % os.getpid()
for page in pages:
    assert page == b"image" * 820, "not as the image has it"
    page[:] = own * 512
number.append(own)
for _ in range(3):
    time.sleep(0.1)
    for page in pages:
        assert page == own * 512, "written by another"
    assert number == [7, 7.5, "seven", own]
open("/tmp/good/" + own.decode(), "w").close()
END
    # The starts that began at the image of the script; not of a grep that looks for its name.
    of_pages() {
        begun_of '^arguments: python3.*pages.py'
    }
    until [ "$(of_pages)" -gt 0 ]; do
        python3 /tmp/pages.py > /dev/null 2> /tmp/pages.error &
        wait
    done
    rm /tmp/good/*
    before=$(of_pages)
    for _ in 1 2 3; do
        for _ in 1 2 3 4 5; do
            python3 /tmp/pages.py > /dev/null 2> /tmp/pages.error &
        done
        wait
    done
    [ "$(ls /tmp/good | wc -l)" -eq 15 ] || fail "$(cat /tmp/pages.error)"
    [ "$(of_pages)" -eq $((before + 15)) ] || fail "only $(of_pages) - $before starts from an image"
}

# Makes a file that is both a module of Python and a script: VALUE has the number twice.
value() {
    printf 'VALUE="%06d %06d"\n' "$1" "$1" > "$2.new" && mv "$2.new" "$2"
}

# Changes number $1 of what starts see as the value: in place, by rename, by removal, by return, by
# a mount, and by its end. Until it is complete they see the number before or this one.
change() {
    case $(($1 % 6)) in
    0) printf 'VALUE="%06d %06d"\n' "$1" "$1" | dd of=a/value.py conv=notrunc 2> dd.out ;;
    1) value "$1" a/value.py ;;
    2) value "$1" b/value.py && rm a/value.py ;;
    3) value "$1" a/value.py ;;
    4) value "$1" c/value.py && mount --bind c a ;;
    5) value "$1" under/value.py && until umount a 2> umount.out; do :; done ;;
    esac || fail "change $1"
}

# Starts a command again and again until the storm is over. `now` is the number of the last change
# that was complete, `next` of the last that had begun. A program that is started when nothing is on
# its way sees the value, and else one of those between.
starts() {
    count=0 torn=0
    while [ ! -e over ]; do
        # Another command every twelve starts: one whose images are spoiled again and again is
        # recorded up to what spoils it, and depends on it no more.
        export ROUND=$((count / 12))
        read -r least < now
        got=$("$@" 2> "error.$1")
        read -r most < next
        count=$((count + 1))
        if [ "${got% *}" != "${got#* }" ] || [ -z "$got" ]; then
            # It saw two states: a name without its file, or half of a file.
            [ "$most" -gt "$least" ] || fail "$1 saw '$got': $(cat "error.$1")"
            torn=$((torn + 1))
            continue
        fi
        got=${got% *}
        while [ "${got#0}" != "$got" ] && [ ${#got} -gt 1 ]; do
            got=${got#0}
        done
        [ "$got" -ge "$least" ] && [ "$got" -le "$most" ] ||
            fail "$1 saw $got, which is not between $least and $most"
    done
    echo "$1: $count starts, $torn between two states"
    [ "$torn" -lt "$count" ] || fail "$1 never saw a value"
}

# For so many seconds one loop changes what images depend on, in every way, and two loops beside it
# start what sees it. A start never sees a state that was over before it began.
storm() {
    mkdir -p /tmp/storm/a /tmp/storm/b /tmp/storm/c /tmp/storm/under && cd /tmp/storm ||
        fail "no directory"
    mount --bind a under || fail "no mount"
    export PYTHONPATH=/tmp/storm/a:/tmp/storm/b PYTHONDONTWRITEBYTECODE=1
    value 0 a/value.py && echo 0 > now && echo 0 > next
    starts python3 -S -c 'import value; print(value.VALUE)' &
    python=$!
    PATH=/tmp/storm/a:/tmp/storm/b:$PATH starts bash -c '. value.py; echo "$VALUE"' &
    bash=$!
    end=$(($(date +%s) + $1))
    i=0
    while [ "$(date +%s)" -lt "$end" ]; do
        kill -0 "$python" && kill -0 "$bash" || break
        i=$((i + 1))
        echo $i > next.new && mv next.new next
        change $i
        echo $i > now.new && mv now.new now
        # Five in a row, then time for images that depend on the last one.
        [ $((i % 5)) -ne 0 ] || sleep $((i / 5 % 4 + 1))
    done
    touch over
    wait "$python" || fail "python3"
    wait "$bash" || fail "bash"
    echo "$i changes, $(begun) starts from an image"
    [ "$i" -ge $(($1 / 5)) ] && [ "$(begun)" -ge $(($1 / 5)) ] || fail "too little happened"
}

"$@"
echo done
