# Templates that are saved on non-volatile memory: what one machine saves the next ones have.
#
# Called in the guest with the name of a check; /work is a folder of the host. Each prints what it
# expected and got if that is not the same, and ends with "done" in the end.

fail() {
    echo "FAILED: $*"
    dmesg | grep template:
    exit 1
}

starts() {
    template show "$1" | sed -n 's/^starts: //p'
}

nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"

# A start of Python; each machine makes some.
python_says() {
    /usr/bin/python3 -c 'import json, os, sys; print(json.dumps(sys.argv), os.getcwd(), sys.flags.quiet)' "$@"
}

# The first machine: makes them and saves them.
make() {
    template save py 2> said && fail "it saves what is not there"
    grep -q "there is no py" said || fail "of what is not there it says $(cat said)"
    template make py --python=json || fail "no template of python"
    template bind /usr/bin/python3 py || fail "it cannot be bound"
    template make script --perl-script=/work/script.pl || fail "no template of the script"
    template bind /work/script.pl script || fail "the script cannot be bound"
    $nobody template make py --python || fail "another user makes none"
    $nobody template bind /usr/bin/python3 py || fail "another user's cannot be bound"
    template make other --python=json && template save other || fail "another one"
    $nobody template save py 2> said && fail "another user saves"
    template save py script && template save --user 65534 py || fail "they are not saved"
    # Saved again, it takes the place of what was there.
    template make other --python && template save other || fail "it is not saved again"
    [ "$(nvm list | grep -c template:other)" = 1 ] || fail "$(nvm list)"
    nvm rm "$(nvm list | sed -n 's/ .*template:other//p')" || fail "it is not removed"
    template save py other || fail "the same is not saved again"
    [ "$(nvm list | grep -c template:)" = 4 ] || fail "$(nvm list)"
    nvm verify > said || fail "$(cat said)"
    # In a root directory of its own nothing is saved that others would use.
    mkdir -p /tmp/root && mount --rbind / /tmp/root || fail "no root directory"
    chroot /tmp/root /usr/bin/env PATH="$PATH" template make inside --python ||
        fail "no template inside"
    template save inside 2> said && fail "one of another root directory is saved"
    grep -q "another root directory" said || fail "$(cat said)"
}

# The next machines have them.
use() {
    # A template that no start has used can be removed.
    other=$(nvm list | sed -n 's/ .*template:other//p')
    if [ -n "$other" ]; then
        nvm rm "$other" || fail "it is not removed"
        template start other -- -c '' 2> /dev/null && fail "what was removed is started"
    fi
    [ "$(template list | grep -c '^py')" = 2 ] || fail "$(template list)"
    [ -z "$(starts py)" ] || [ "$(starts py)" = 0 ] || fail "it has started already"
    rm -f /tmp/said.*
    for number in 1 2 3 4 5 6 7 8; do
        (python_says "$number" > /tmp/said.$number 2>&1) &
    done
    wait
    for number in 1 2 3 4 5 6 7 8; do
        expected="[\"-c\", \"$number\"] $PWD 0"
        [ "$(cat /tmp/said.$number)" = "$expected" ] ||
            fail "expected '$expected', got '$(cat /tmp/said.$number)'"
    done
    python_says 9 > /dev/null || fail "a later start"
    [ "$(starts py)" -ge 1 ] || fail "$(starts py) starts of python began there"
    /usr/bin/python3 -c 'import hashlib, os
maps = open("/proc/self/maps").read()
assert "[heap]" in maps and "[stack]" in maps and "python3" in maps, maps
data = bytearray(os.urandom(3 << 20))
assert len(hashlib.sha256(data).hexdigest()) == 64
assert os.fork() or os._exit(0) is None
assert os.wait()[1] == 0' || fail "a start that looks at itself"
    expected="script a b $(id -u)"
    [ "$(/work/script.pl a b)" = "$expected" ] || fail "the script says $(/work/script.pl a b)"
    [ "$(starts script)" -ge 1 ] || fail "the script did not begin at its template"
    [ "$($nobody /usr/bin/python3 -c 'import os; print(os.getuid())')" = 65534 ] ||
        fail "another user's python"
    [ "$($nobody template show py | sed -n 's/^starts: //p')" = 1 ] ||
        fail "another user's start did not begin at its own: $($nobody template show py)"
    template save py 2> said && fail "it is saved twice"
    grep -q "came from non-volatile memory" said || fail "$(cat said)"
    # Processes may have its pages.
    nvm rm "$(nvm list | sed -n '/template:py/s/ .*//p' | head -1)" 2> said && fail "it is removed"
    nvm verify > said || fail "something wrote to the memory: $(cat said)"
    # One that is made in this machine takes its place.
    template make py --python=json || fail "no template of python"
    [ "$(python_says x)" = "[\"-c\", \"x\"] $PWD 0" ] || fail "python says $(python_says x)"
    template rm py && template rm script || fail "they cannot be removed"
    [ "$(python_says y)" = "[\"-c\", \"y\"] $PWD 0" ] || fail "python says $(python_says y)"
}

# A machine in which the script is another one, of the same size and time.
changed() {
    [ "$(/work/script.pl a b)" = "SCRIPT a b $(id -u)" ] || fail "a stale script: $(/work/script.pl)"
    dmesg | grep -q "template: script is not used: a file that it was made of has changed" ||
        fail "nothing is said of it"
    [ "$(python_says z)" = "[\"-c\", \"z\"] $PWD 0" ] || fail "python says $(python_says z)"
    [ "$(starts py)" -ge 1 ] || fail "python did not begin at its template"
    template list | grep -q script && fail "it is still there: $(template list)"
    # A module that is newer, another library: before the first start.
    touch /usr/lib/python3.11/os.py
    [ "$($nobody /usr/bin/python3 -c 'print(6 * 7)')" = 42 ] || fail "after a module was changed"
    $nobody template list | grep -q py && fail "it is still there: $($nobody template list)"
    true
}

# A machine that cannot use them: a start is one as always, and the log says why.
unused() {
    [ "$(python_says u)" = "[\"-c\", \"u\"] $PWD 0" ] || fail "python says $(python_says u)"
    dmesg | grep -q "$1" || fail "the log does not say: $1"
    template list | grep -q '^py  *0 ' && fail "it is there: $(template list)"
    true
}

"$@"
echo done
