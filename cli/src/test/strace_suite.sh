# strace's own tests, run in the guest by the harness that comes with them.
#
# Called with the names of tests that are known to fail. Others that fail are run once more, alone:
# many compare times, and software translation on a busy host is slow. Prints a line `RESULT NAME`
# for each test, and behind it what was not passed said. Nothing is compiled: there is no compiler.

cd /usr/src/strace/tests || exit 1
export HOME=/tmp LC_ALL=C

# made OPTION...: what `make check` runs, with more patience for each test.
made() {
    make -k "$@" check-TESTS TIMEOUT_DURATION=900 >/tmp/made 2>&1
}

result() {
    gawk '/^:test-result:/ { print $2 }' "$1.trs" 2>/tmp/none || echo NONE
}

names=$(printf 'include Makefile\nnames: ; @echo $(TESTS:.test=)\n' | make -s -f - names)
made -j2
again=
for name in $names; do
    case " $* " in *" $name "*) continue ;; esac
    case $(result "$name") in PASS | SKIP) ;; *) again="$again $name.test" ;; esac
done
[ -z "$again" ] || made TESTS="$again"
tail -n 5 /tmp/made | sed 's/^/| /'
for name in $names; do
    result=$(result "$name")
    echo "$result $name"
    [ "$result" = PASS ] || tail -c 3000 "$name.log" | sed 's/^/| /'
done
echo done
