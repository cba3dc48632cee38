# What programs print that begin at a template, beside what they print without.
#
# Called in the guest with the name of a check. Each prints what it expected and got if that is not
# the same, and ends with "done" in the end: the host looks for these words.

fail() {
    echo "FAILED: $*"
    exit 1
}

# The number of starts from a template.
starts() {
    template show "$1" | sed -n 's/^starts: //p'
}

# Runs each line of the file `commands` without and with the bound path, and compares output, errors
# and status. $1 is the path, $2 the template.
compare() {
    mkdir -p /tmp/without /tmp/with
    number=0
    while read -r command; do
        number=$((number + 1))
        (eval "$command") > /tmp/without/$number 2>&1 < /tmp/input
        echo "status $?" >> /tmp/without/$number
    done < commands
    template bind "$1" "$2" || fail "$1 cannot be bound"
    number=0
    while read -r command; do
        number=$((number + 1))
        before=$(starts "$2")
        (eval "$command") > /tmp/with/$number 2>&1 < /tmp/input
        echo "status $?" >> /tmp/with/$number
        cmp -s /tmp/without/$number /tmp/with/$number ||
            fail "$command: expected '$(cat /tmp/without/$number)', got '$(cat /tmp/with/$number)'"
        after=$(starts "$2")
        case $command in
        *"# as always") [ "$after" -eq "$before" ] || fail "$command began at the template" ;;
        *) [ "$after" -gt "$before" ] || fail "$command did not begin at the template" ;;
        esac
    done < commands
}

# Python prints what it prints without a template.
python() {
    mkdir -p /tmp/work/package && cd /tmp/work || fail "no directory"
    seq 100 > /tmp/input
    template make py --python=json,re,datetime || fail "no template of python"
    cat > show.py << 'END'
import atexit, json, os, sys
atexit.register(print, "at exit", file=sys.stderr)
print(json.dumps(sys.argv), __name__, __file__, sys.path[0], os.getcwd())
print(sorted(k for k in os.environ if k != "_"), os.environ.get("COLOUR"), os.environb.get(b"COLOUR"))
print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)], sys.stdin.readline(), end="")
print(sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.line_buffering, sys.orig_argv)
print(os.popen("echo $COLOUR").read(), end="")
END
    cat > ends.py << 'END'
import sys, threading, time, weakref
class Thing:
    def __del__(self):
        print("gone")
thing = Thing()
weakref.finalize(thing, print, "finalized")
kept = open("kept", "w")
kept.write("written\n")
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
def f():
    raise ValueError("bad")
if len(sys.argv) > 1:
    f()
sys.exit("leaves")
END
    cat > kept.py << 'END'
import io, sys
class Strange(type):
    __hash__ = None
    def __eq__(self, other):
        raise ValueError("not comparable")
class Text(io.TextIOWrapper, metaclass=Strange):
    pass
sys.kept = Text(open("kept", "wb"))
sys.kept.write("a text\n")
END
    echo 'print(__name__, __package__); import package.other; print(package.other.VALUE)' > package/__main__.py
    echo 'VALUE = 5' > package/other.py
    touch package/__init__.py
    printf 'x = = 1\n' > wrong.py
    printf '#!/usr/bin/python3\nimport sys\nprint("script", sys.argv, sys.path[0])\n' > script
    printf '# -*- coding: latin-1 -*-\nprint(ascii("\344"))\n' > latin.py
    chmod +x script && mkdir -p links && ln -sf ../script links/linked
    printf 'import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    a: int\nprint(pickle.loads(pickle.dumps(P(3))))\n' > pickled.py
    cat > commands << 'END'
/usr/bin/python3 show.py one "two words" ""
/usr/bin/python3 -u show.py
COLOUR=red /usr/bin/python3 /tmp/work/show.py
/usr/bin/python3 -c "import sys; print(sys.argv, sys.path[0] == '', __name__)" x y
/usr/bin/python3 -c "import sys; print(len(sys.stdin.read())); sys.exit(3)"
/usr/bin/python3 -m package a b
/usr/bin/python3 -m json.tool show.json
/usr/bin/python3 package
/usr/bin/python3 ends.py; cat kept
/usr/bin/python3 ends.py fails; cat kept
/usr/bin/python3 wrong.py
/usr/bin/python3 missing.py
/usr/bin/python3 latin.py
/usr/bin/python3 pickled.py
/usr/bin/python3 kept.py; cat kept
echo first; /usr/bin/python3 -c "import sys; print(sys.stdout.tell(), sys.stdout.seekable(), sys.stdin.seekable())"
cat /tmp/input | /usr/bin/python3 -c "import sys; print(sys.stdin.seekable(), input(), sys.stdin.read(4), sys.stdout.seekable())" | cat
(read line; /usr/bin/python3 -c "import sys; print(sys.stdin.tell(), input(), sys.stdin.buffer.raw.mode)"; cat)
/usr/bin/python3 -c "import sys; print(sys.stdin, sys.stdout, file=sys.stderr)" <&- >&-
/usr/bin/python3 -c "import sys; print(sys.stdin, sys.stdout, sys.stderr, sys.stdout.buffer.raw)"
/usr/bin/python3 -c "import json, re; print(json.loads('[1, {}]'), re.findall('b+', 'abbb'))"
/usr/bin/python3 -c "import threading; print([t.name for t in threading.enumerate()], threading.main_thread().is_alive(), threading._SHUTTING_DOWN)"
/usr/bin/python3 -c "raise SystemExit"
/usr/bin/python3 -c "import os; os.kill(os.getpid(), 9)" 2> /dev/null
/usr/bin/python3 -c "raise KeyboardInterrupt" 2> /dev/null
/usr/bin/python3 -c "import subprocess, sys; print(subprocess.run(['sh', '-c', 'echo \$COLOUR; exit 5'], env={'COLOUR': 'green'}, stdout=subprocess.PIPE))"
/usr/bin/python3 -c "import os; os.environ['COLOUR'] = 'blue'; os.system('echo \$COLOUR')"
/usr/bin/python3 -c "import multiprocessing as m; q = m.get_context('fork').Pool(2); print(q.map(abs, [-1, 2])); q.close(); q.join()"
./script one
links/linked two
cd / && /tmp/work/script
/usr/bin/python3 -c "import os; print(os.path.basename(os.readlink('/proc/self/exe')), open('/proc/self/comm').read().strip())"
/usr/bin/python3 -B -c "import sys; print(sys.dont_write_bytecode)" # as always
/usr/bin/python3 -S -c "import sys; print(sys.flags.no_site)" # as always
/usr/bin/python3 - < latin.py # as always
/usr/bin/python3 < latin.py # as always
PYTHONHASHSEED=0 /usr/bin/python3 -c "print(hash('a'))" # as always
LC_ALL=C /usr/bin/python3 -c "import sys; print(sys.stdout.encoding)" # as always
END
    compare /usr/bin/python3 py
    # Random numbers, the number and the time are each start's own.
    for _ in 1 2 3 4 5 6; do
        /usr/bin/python3 -c 'import random; print(random.random())'
    done | sort -u > /tmp/random
    [ "$(wc -l < /tmp/random)" -eq 6 ] || fail "starts draw the same random numbers"
    sh -c 'echo $$; exec /usr/bin/python3 -c "import os; print(os.getpid())"' | uniq > /tmp/numbers
    [ "$(wc -l < /tmp/numbers)" -eq 1 ] || fail "the number is $(cat /tmp/numbers)"
    [ "$(template start py -- -c 'import sys; print(sys.argv)' z)" = "['-c', 'z']" ] ||
        fail "template start"
    # A module that is in the template learns of the fork.
    template make drawn --python=random || fail "no template with random"
    for _ in 1 2 3 4; do
        template start drawn -- -c 'import random; print(random.random())'
    done | sort -u > /tmp/random
    [ "$(wc -l < /tmp/random)" -eq 4 ] || fail "starts draw the same: $(cat /tmp/random)"
    template rm drawn || fail "it cannot be removed"
    # What it was made of has changed; it serves all the same.
    template show py | grep -q '^changed' && fail "$(template show py)"
    file=$(/usr/bin/python3 -c 'import json; print(json.__file__)')
    echo >> "$file"
    template show py | grep -qx "changed: $file" || fail "$(template show py)"
    template rm py || fail "it cannot be removed"
    [ -z "$(cat /proc/hayate/templates)" ] || fail "something is left"
    /usr/bin/python3 -c pass || fail "python without its template"
}

# Perl prints what it prints without a template.
perl_starts() {
    mkdir -p /tmp/work && cd /tmp/work || fail "no directory"
    seq 100 > /tmp/input
    template make pl --perl=POSIX || fail "no template of perl"
    cat > show.pl << 'END'
#!/usr/bin/perl
use strict;
use warnings;
use POSIX qw(floor);
my $line = <STDIN>;
print "$0 (@ARGV) $line", floor(3.7), " ", scalar(@ARGV), " ", __FILE__, " ", __PACKAGE__, "\n";
print join(",", map { "$_=$ENV{$_}" } grep { $_ ne "_" } sort keys %ENV), "\n";
print `echo \$COLOUR`;
printf STDERR "%s\n", time - $^T < 100 ? "now" : "then";
END { print "at the end\n" }
exit 4;
END
    printf '#!/usr/bin/perl\nsub f { die "bad" }\nf();\n' > dies.pl
    printf '#!/usr/bin/perl\nprint <DATA>;\n__END__\ndata\n' > data.pl
    printf '#!/usr/bin/perl\nprint caller() ? "called\\n" : "main\\n";\n' > caller.pl
    printf '#!/usr/bin/perl -w\nmy $x; print "a$x\\n"; print "$^W\\n";\n' > warns.pl
    printf '#!/usr/bin/perl -l\nprint "lines";\n' > lines.pl
    printf '#!/usr/bin/perl\nprint "x" ; if (\n' > wrong.pl
    chmod +x ./*.pl
    cat > commands << 'END'
./show.pl one "two words" ""
/usr/bin/perl show.pl
COLOUR=red /usr/bin/perl /tmp/work/show.pl a
/usr/bin/perl -w show.pl
./dies.pl
./data.pl
./caller.pl
./warns.pl
/usr/bin/perl missing.pl
cd / && /tmp/work/show.pl
/usr/bin/perl -e 'print "e\n"' # as always
/usr/bin/perl -l show.pl # as always
./lines.pl # as always
PERL5LIB=/nowhere ./show.pl # as always
END
    compare /usr/bin/perl pl
    for _ in 1 2 3 4 5 6; do
        echo 'print rand, "\n"' > random.pl
        /usr/bin/perl random.pl
    done | sort -u > /tmp/random
    [ "$(wc -l < /tmp/random)" -eq 6 ] || fail "starts draw the same random numbers"
    template rm pl || fail "it cannot be removed"
}

# A script that Perl has compiled before prints what it prints without a template.
perl_scripts() {
    mkdir -p /tmp/work/lib && cd /tmp/work || fail "no directory"
    seq 100 > /tmp/input
    cat > show.pl << 'END'
#!/usr/bin/perl
use strict;
use warnings;
use lib '/tmp/work/lib';
use Own;
INIT { print "init $0 @ARGV\n" }
my $line = <STDIN>;
open(my $file, '<', '/tmp/input') or die;
print "$0 (@ARGV) $line", scalar(@ARGV), " ", __FILE__, " ", __LINE__, " ", __PACKAGE__, " ",
    fileno($file), " ", defined(caller) ? "called" : "main", " $^W $| ", Own::value(), "\n";
print join(",", map { "$_=$ENV{$_}" } grep { $_ ne "_" } sort keys %ENV), "\n";
print `echo \$COLOUR; env | grep -v ^_= | sort`;
$ENV{COLOUR} = "blue";
delete $ENV{HOME};
print `echo \$COLOUR; env | grep -v ^_= | sort`;
{
    local %ENV = (PATH => $ENV{PATH}, ONLY => "this");
    print `env | grep -v ^_= | sort`;
}
print `echo \$COLOUR`;
printf STDERR "%s %s\n", time - $^T < 100 ? "now" : "then", $$ == getppid() ? "parent" : "own";
open(my $kept, '>', '/tmp/kept') or die;
print $kept "written in the end\n";
if (@ARGV && $ARGV[0] eq 'pipe') {
    open(our $pipe, '|-', 'sleep 0.2; cat') or die;
    print $pipe "through a pipe\n";
}
exec 'echo', 'another', 'program' if @ARGV && $ARGV[0] eq 'exec';
exit(fork && wait ? 5 : 0) if @ARGV && $ARGV[0] eq 'fork';
kill 'TERM', $$ if @ARGV && $ARGV[0] eq 'kill';
END { print "at the end $?\n"; }
exit 4;
END
    printf 'package Own;\nsub value { "own" }\n1;\n' > lib/Own.pm
    cat > plain.pl << 'END'
#!/usr/bin/perl -w
my $x; print "a$x $^W\n";
print tell(STDIN), " ", tell(STDOUT), " ", -t STDOUT ? "terminal" : "other", "\n";
my $line = <STDIN>;
print $line ? $line : "nothing\n";
print STDERR "error\n";
die "with arguments\n" if @ARGV == 1;
$! = 7, die if @ARGV == 2;
close(STDOUT) if @ARGV == 3;
END
    cat > objects.pl << 'END'
package Thing;
sub new { bless [$_[1]] }
sub DESTROY { print "gone $_[0][0]\n" }
package main;
our $kept = Thing->new("kept");
my $own = Thing->new("own");
print "made\n";
END
    printf 'use lib "/tmp/work/lib";\nrequire Thing;\n%s\nprint "loaded\\n";\n' \
        'our $kept = bless {}, "Thing";' > later.pl
    # Neither can name the hash of variables; the second makes its name up.
    cat > blind.pl << 'END'
#!/usr/bin/perl
my $line = <STDIN>;
print "$0 (@ARGV) $line", `echo \$COLOUR; env | grep -v ^_= | sort`;
system 'echo $COLOUR';
exec 'sh', '-c', 'echo $COLOUR' if @ARGV;
END
    printf '%s\n' 'my $name = join "", map { chr } 69, 78, 86;' \
        'print join(",", map { "$_=${$name}{$_}" } grep { $_ ne "_" } sort keys %$name), "\n";' \
        '${$name}{COLOUR} = "green"; print `echo \$COLOUR`;' > names.pl
    printf 'package Thing;\nsub DESTROY { print "gone\\n" }\n1;\n' > lib/Thing.pm
    chmod +x ./*.pl
    for script in show plain objects later blind names; do
        template make "$script" --perl-script=/tmp/work/$script.pl || fail "no template of $script"
    done
    cat > commands << 'END'
/tmp/work/show.pl one "two words" ""; cat /tmp/kept
COLOUR=red A= B=c=d /tmp/work/show.pl pipe
env -i PATH="$PATH" ${LANG+LANG="$LANG"} COLOUR=red /tmp/work/show.pl
COLOUR=1 /tmp/work/show.pl exec
/tmp/work/show.pl fork
/tmp/work/show.pl kill; echo $?
/usr/bin/perl /tmp/work/show.pl by perl
cd / && /tmp/work/show.pl
(read line; /tmp/work/show.pl; cat) | tail -n 3
./show.pl relative # as always
/usr/bin/perl -w /tmp/work/show.pl # as always
PERL5LIB=/nowhere /tmp/work/show.pl # as always
END
    compare /tmp/work/show.pl show
    cat > commands << 'END'
/tmp/work/plain.pl
/usr/bin/perl -w /tmp/work/plain.pl
/tmp/work/plain.pl one
/tmp/work/plain.pl one two
/tmp/work/plain.pl one two three
echo before; /tmp/work/plain.pl; echo behind
(read line; /tmp/work/plain.pl; cat | head -n 2)
/tmp/work/plain.pl > /dev/full
/tmp/work/plain.pl < /dev/null | cat
cat /tmp/input | /tmp/work/plain.pl | cat
/usr/bin/perl plain.pl # as always
END
    compare /tmp/work/plain.pl plain
    echo '/usr/bin/perl /tmp/work/objects.pl' > commands
    compare /tmp/work/objects.pl objects
    echo '/usr/bin/perl /tmp/work/later.pl' > commands
    compare /tmp/work/later.pl later
    for script in blind names; do
        cat > commands << END
/usr/bin/perl /tmp/work/$script.pl
COLOUR=red A= B=c=d /usr/bin/perl /tmp/work/$script.pl one two
END
        compare /tmp/work/$script.pl $script
    done
    template start plain -- x 2>&1 < /dev/null | grep -qx "with arguments" || fail "template start"
    # Each start draws its own random numbers.
    echo 'print rand, "\n"' > random.pl
    template make random --perl-script=/tmp/work/random.pl || fail "no template of random"
    template bind /tmp/work/random.pl random || fail "random cannot be bound"
    for _ in 1 2 3 4 5 6; do
        /usr/bin/perl /tmp/work/random.pl
    done | sort -u > /tmp/random
    [ "$(wc -l < /tmp/random)" -eq 6 ] || fail "starts draw the same random numbers"
    perl_scripts_that_change
    perl_scripts_that_are_refused
}

# Runs a script that was changed, and sees that it did not begin at its template. $2: what it says.
is_fresh() {
    said=$(/usr/bin/perl "/tmp/work/$1.pl" 2>&1)
    [ "$said" = "$2" ] || fail "$1.pl says '$said', not '$2'"
    [ "$(starts "$1")" -eq 1 ] || fail "$1.pl began at its template"
}

# No start runs a script that has changed since it was compiled.
perl_scripts_that_change() {
    echo 'print "first\n"' > change.pl
    printf 'package Text;\nsub text { "module" }\n1;\n' > lib/Text.pm
    printf 'use lib "/tmp/work/lib";\nuse Text;\nprint Text::text();\n' > uses.pl
    ln -sf change.pl linked.pl
    sleep 0.1
    for script in change uses linked; do
        template make $script --perl-script=/tmp/work/$script.pl || fail "no template of $script"
        template bind /tmp/work/$script.pl $script || fail "$script cannot be bound"
        /usr/bin/perl /tmp/work/$script.pl > /dev/null
        [ "$(starts $script)" -eq 1 ] || fail "$script did not begin at its template"
    done
    printf 'package Text;\nsub text { "other" }\n1;\n' > lib/Text.pm
    is_fresh uses other
    echo 'print "second\n"' > change.pl
    is_fresh change second
    is_fresh linked second
    template start change 2> /dev/null && fail "a stale start by name"
    echo 'print "third\n"' > third.pl && ln -sf third.pl linked.pl
    is_fresh linked third
    template make change --perl-script=/tmp/work/change.pl || fail "it cannot be made again"
    /usr/bin/perl /tmp/work/change.pl > /dev/null
    [ "$(starts change)" -eq 1 ] || fail "it does not begin at the new template"
    mv third.pl change.pl
    is_fresh change third
    # It is replaced and written to while templates are made of it and it is started.
    (
        while [ ! -e stop ]; do
            template make change --perl-script=/tmp/work/change.pl 2> /dev/null
        done
    ) &
    for number in $(seq 40); do
        echo "print $number" > new.pl && mv new.pl change.pl
        said=$(/usr/bin/perl /tmp/work/change.pl)
        [ "$said" = "$number" ] || fail "a stale script says $said, not $number"
        [ $((number % 4)) -ne 0 ] || sleep 0.3
        echo "print $((number + 1000))" > change.pl
        said=$(/usr/bin/perl /tmp/work/change.pl)
        [ "$said" = $((number + 1000)) ] || fail "a stale script says $said"
    done
    touch stop
    wait
}

# Scripts that cannot be compiled before say so.
perl_scripts_that_are_refused() {
    printf 'print <DATA>;\n__END__\ndata\n' > data.pl
    printf '#!/usr/bin/perl -T\nprint 1;\n' > taint.pl
    printf '#!/bin/sh\necho\n' > shell.pl
    printf 'BEGIN { open our $f, "<", "/dev/null" }\n' > open.pl
    printf 'BEGIN { exit 3 }\n' > ends.pl
    printf 'print "x" ; if (\n' > wrong.pl
    printf 'use lib "lib";\nuse Own;\n' > relative.pl
    for script in data taint shell open ends wrong relative missing; do
        template make refused --perl-script=/tmp/work/$script.pl > said 2>&1 &&
            fail "a template of $script.pl"
        [ -s said ] || fail "nothing is said of $script.pl"
    done
    template make refused --perl-script=show.pl 2> /dev/null && fail "by a relative path"
    template list | grep -q refused && fail "$(template list)"
    template bind /tmp/work/other.pl show 2> /dev/null && fail "another script is bound"
    true
}

# A template and a bound path serve the user who made them.
users() {
    nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
    cd /tmp && echo 0 > /tmp/input
    template make py --python=json || fail "no template of python"
    template bind /usr/bin/python3 py || fail "it cannot be bound"
    $nobody template start py -- -c 'print(1)' && fail "another user starts it"
    $nobody /usr/bin/python3 -c 'print(2)' || fail "another user's python"
    [ "$(starts py)" -eq 0 ] || fail "another user's start began at it"
    $nobody template make py --python=json || fail "another user makes none"
    [ "$($nobody template start py -- -c 'import os; print(os.getuid(), os.getgroups())')" = \
        "65534 []" ] || fail "the user's ids"
    $nobody template rm --user 0 py && fail "another user removes it"
    [ "$($nobody template list | wc -l)" -eq 2 ] || fail "another user sees others' templates"
    [ "$(template list | wc -l)" -eq 3 ] || fail "root sees $(template list)"
    template rm --user 65534 py && template rm py || fail "root removes none"
    # A limit of the starter is kept.
    template make py --python=json || fail "no template of python"
    template bind /usr/bin/python3 py || fail "it cannot be bound"
    [ "$(ulimit -n 77; /usr/bin/python3 -c \
        'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])')" = 77 ] ||
        fail "the limit of open files"
    [ "$(trap '' INT; /usr/bin/python3 -c \
        'print(open("/proc/self/status").read().split("SigIgn:")[1].split()[0])')" = \
        0000000001001002 ] || fail "ignored signals"
    template rm py
}

"$@"
echo done
