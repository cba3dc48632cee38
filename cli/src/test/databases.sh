# Programs that keep their data on a disk, as their users run them; the disk is at /d.
# Of what they do only the lines that the test reads are printed.

bin=$(echo /usr/lib/postgresql/*/bin)

as_postgres() {
    setpriv --reuid=postgres --regid=postgres --clear-groups env -C / LC_ALL=C "$@"
}

start_postgres() {
    as_postgres "$bin/pg_ctl" -s -w -t 120 -D /d/pg -l /d/pg/log start && return
    cat /d/pg/log >&2
    exit 1
}

stop_postgres() {
    as_postgres "$bin/pg_ctl" -s -w -t 120 -m fast -D /d/pg stop || exit
}

ask() {
    as_postgres "$bin/psql" -qAtX -v ON_ERROR_STOP=1 -h /tmp "$@" postgres
}

# A cluster with checksums, the tables of pgbench, and one for numbers.
postgres_make() {
    mkdir /d/pg && chown postgres:postgres /d/pg && chmod 700 /d/pg || exit
    as_postgres "$bin/initdb" -k -A trust -D /d/pg >/dev/null || exit
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '/tmp'" \
        "shared_buffers = 32MB" >>/d/pg/postgresql.conf
    start_postgres
    as_postgres "$bin/pgbench" -i -q -h /tmp postgres 2>/dev/null || exit
    ask -c 'create table told (n integer primary key)' || exit
    stop_postgres
    echo made
}

# Inserts numbers from $1 on, and tells each when it is committed, beside pgbench, which
# without -n would empty its history first.
postgres_load() {
    start_postgres
    as_postgres "$bin/pgbench" -n -c 2 -T 1000 -h /tmp postgres >/dev/null 2>&1 &
    seq "$1" $(($1 + 100000)) |
        sed 's/.*/insert into told values (&) returning n;/' | ask
}

# Prints how many numbers there are, the largest, and whether the sums of pgbench agree; then the
# pages' checksums are verified.
postgres_check() {
    start_postgres
    ask -F ' ' -c 'select count(*), coalesce(max(n), 0),
        (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers)
        and (select sum(bbalance) from pgbench_branches) =
            (select coalesce(sum(delta), 0) from pgbench_history)
        and (select sum(abalance) from pgbench_accounts) =
            (select coalesce(sum(delta), 0) from pgbench_history)
        from told' || exit
    stop_postgres
    as_postgres "$bin/pg_checksums" --check -D /d/pg >/dev/null || exit
}

# A repository of many files, cloned, packed and changed.
git_make() {
    export HOME=/d GIT_CONFIG_NOSYSTEM=1
    git config --global user.name Tester
    git config --global user.email tester@example.org
    git config --global init.defaultBranch main
    git config --global gc.auto 0
    cp -r "$(echo /usr/lib/python3.*)" /d/work && cd /d/work && git init -q || exit
    git add . && git commit -q -m first || exit
    rm -r json && echo more >>this.py && git add -A && git commit -q -m second || exit
    git clone -q /d/work /d/clone && git gc -q && git fsck --full || exit
    git -C /d/clone rev-parse HEAD >/d/head
    echo made
}

git_check() {
    export HOME=/d GIT_CONFIG_NOSYSTEM=1
    for repository in work clone; do
        cd "/d/$repository" && git fsck --full || exit
        git diff --quiet HEAD && [ -z "$(git status --porcelain)" ] || exit
        [ "$(git rev-parse HEAD)" = "$(cat /d/head)" ] || exit
    done
    git -C /d/work checkout -q HEAD~1 && diff -r -x .git -x __pycache__ /d/work \
        "$(echo /usr/lib/python3.*)" || exit
    git -C /d/work checkout -q main
    echo checked
}

"$@"
