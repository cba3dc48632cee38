#!/bin/sh
# Resources are visible and can be worked with: /proc/hayate and the guest program `resource`.
if [ ! -d /proc/hayate/resources ]; then
    echo "/proc/hayate is Hayate's own"
    exit 77
fi
fail() {
    echo "$*"
    exit 1
}
at=/proc/hayate/resources
for kind in plate program region space attachment work-area process execution image; do
    [ -d $at/$kind ] || fail "no $kind"
done
[ "$(ls $at | wc -l)" -eq 9 ] || fail "a kind too many: $(ls $at)"

# A resource is found by serial and by name, and says so.
serial=$(ls $at/process | head -n 1)
grep -qx "serial: $serial" $at/process/$serial || fail "process $serial does not know its serial"
own=$(sed -n 's/^pid: //p' $at/process/[0-9]* 2>/dev/null | grep -cx $$)
[ "$own" -eq 1 ] || fail "this shell is shown $own times"
sleep 60 &
sleeper=$!
while ! grep -q sleep /proc/$sleeper/comm 2>/dev/null; do :; done
# Until it is loaded.
maps=
until [ -n "$maps" ] && [ "$maps" = "$(cat /proc/$sleeper/maps)" ] &&
    grep -q '^State:.S' /proc/$sleeper/status; do
    maps=$(cat /proc/$sleeper/maps)
    sleep 0.2
done
grep -qx "pid: $sleeper" $at/process/sleep || fail "not found by its name"
space=$(sed -n 's/^space: //p' $at/process/sleep)
grep -qx 'name: sleep' $at/space/$space || fail "its space $space is another's"
# Two listings are of two moments: they have to agree soon, not at once.
looks=0
until regions=$(ls $at/region | grep -c "^$space-")
    attached=$(ls $at/attachment | grep -c "^$space-")
    [ "$regions" -gt 2 ] && [ "$regions" -eq "$attached" ]; do
    looks=$((looks + 1))
    [ $looks -lt 25 ] || fail "$regions regions, $attached attached"
    sleep 0.2
done
# Pages that the kernel shows to every program are no region of its space.
[ "$regions" -eq "$(grep -vcE '\[(vsyscall|vvar|vdso)\]' /proc/$sleeper/maps)" ] ||
    fail "the maps say otherwise"
stack=$(grep -lx 'name: stack' $at/region/$space-* | head -n 1)
grep -qx 'rights: rw-' $at/attachment/${stack##*/} || fail "the stack's rights"
program=$(sed -n 's/^program: //p' $at/process/sleep)
grep -q "^name: /" $at/program/$program || fail "its program $program has no path"
grep -qx "serial: $program" $at/plate/$program || fail "its program has no plate"

# Attributes are changed by who may.
echo 'name dozing' >$at/process/sleep || fail "cannot change a name"
grep -qx dozing /proc/$sleeper/comm || fail "the name did not change"
execution=$(sed -n 's/^execution: //p' $at/process/dozing)
echo 'nice 7' >$at/execution/$execution || fail "cannot change nice"
grep -qx 'nice: 7' $at/execution/$execution || fail "nice did not change"
(echo 'nice 70' >$at/execution/$execution) 2>/dev/null && fail "took a nice of 70"
(echo 'colour red' >$at/process/dozing) 2>/dev/null && fail "took a colour"
(echo 'name x' >$at/process/999999) 2>/dev/null && fail "changed what is not there"
kill $sleeper
wait $sleeper 2>/dev/null
[ -e $at/space/$space ] && [ "$(sed -n 's/^state: //p' $at/space/$space)" = "in use" ] &&
    fail "its space is still in use"

# Counts and policy.
[ "$(wc -l </proc/hayate/pools)" -eq 10 ] || fail "pools: $(cat /proc/hayate/pools)"
read -r policy </proc/hayate/policy
free=$(sed -n 's/^free //p' /proc/hayate/frames)
[ "$free" -gt 1000 ] || fail "free frames: $free"
if [ "$(id -u)" -eq 0 ]; then
    echo all+text >/proc/hayate/policy || fail "cannot change the policy"
    grep -qx all+text /proc/hayate/policy || fail "the policy did not change"
    (echo nonsense >/proc/hayate/policy) 2>/dev/null && fail "took nonsense for a policy"
    grep -qx all+text /proc/hayate/policy || fail "nonsense changed the policy"
    echo "$policy" >/proc/hayate/policy
    echo drop >/proc/hayate/pools || fail "cannot drop"
    (echo 'drop bicycles' >/proc/hayate/pools) 2>/dev/null && fail "dropped bicycles"
    # Kernel stacks: taken from what is kept, or made if nothing is to be kept. Fields: kind made
    # reused stored dropped kept bytes limit.
    areas() { set -- "$1" $(grep '^work-area ' /proc/hayate/pools) && eval "echo \${$(($1 + 1))}"; }
    twenty() { for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (exit 0); done; }
    twenty
    made=$(areas 2) reused=$(areas 3)
    twenty
    [ $(($(areas 3) - reused)) -ge 15 ] || fail "20 starts did not reuse work areas"
    [ $(($(areas 2) - made)) -lt 10 ] || fail "20 starts made work areas"
    echo full-work-area >/proc/hayate/policy
    [ "$(areas 6) $(areas 7)" = "0 0" ] || fail "work areas are kept against the policy"
    made=$(areas 2) reused=$(areas 3)
    twenty
    [ $(($(areas 2) - made)) -ge 20 ] || fail "starts did not make their work areas"
    [ "$(areas 3)" -eq "$reused" ] || fail "starts found work areas that nobody keeps"
    [ "$(areas 6)" -eq 0 ] || fail "work areas are kept against the policy"
    echo "$policy" >/proc/hayate/policy
    limit=$(areas 8)
    echo 'limit work-area 0' >/proc/hayate/pools || fail "cannot limit work areas"
    twenty
    [ "$(areas 6) $(areas 8)" = "0 0" ] || fail "work areas are kept above their limit"
    echo "limit work-area $limit" >/proc/hayate/pools
    twenty
    reused=$(areas 3)
    twenty
    [ $(($(areas 3) - reused)) -ge 15 ] || fail "work areas are not reused any more"
    if command -v setpriv >/dev/null && setpriv --reuid 12345 true 2>/dev/null; then
        as() { setpriv --reuid 12345 --regid 12345 --clear-groups "$@"; }
        as sh -c 'echo none >/proc/hayate/policy' 2>/dev/null && fail "anybody sets the policy"
        as sh -c 'echo drop >/proc/hayate/pools' 2>/dev/null && fail "anybody drops"
        # Where others have their memory is their business.
        other=$(as ls $at/region | grep -c "^$(sed -n 's/^space: //p' $at/process/1)-")
        [ "$other" -eq 0 ] || fail "addresses of root are shown"
        as sh -c "echo name x >$at/process/1" 2>/dev/null && fail "anybody names process 1"
    fi
fi

# The program for people.
command -v resource >/dev/null || { echo "no program resource here"; exit 0; }
resource list process | grep -q '^process .*in use' || fail "list"
resource show process/1 | grep -q '^pid *1$' || fail "show"
resource show process/1 --json | grep -q '"pid": 1,' || fail "show as JSON"
resource pools --json | grep -q '"kind": "work-area"' || fail "pools as JSON"
[ "$(resource policy)" = "$policy" ] || fail "policy"
resource policy nonsense 2>/dev/null
[ $? -eq 2 ] || fail "the status of nonsense"
resource show process/999999 2>/dev/null
[ $? -eq 1 ] || fail "the status of what is not there"
resource list --help | grep -q Examples || fail "help"
