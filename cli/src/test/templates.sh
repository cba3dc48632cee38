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
