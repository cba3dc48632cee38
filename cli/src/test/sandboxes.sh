# Debian's unshare, bubblewrap, runc and systemd at work.
#
# Called in the guest with the name of a check. Each prints what it got if that is not what a Linux
# prints, and ends with "done" in the end: the host looks for that word.

fail() {
    echo "FAILED: $*"
    exit 1
}

# is WANTED COMMAND...: the command succeeds, and prints this.
is() {
    wanted=$1
    shift
    got=$("$@" 2>&1) || fail "$*: status $?: $got"
    [ "$got" = "$wanted" ] || fail "$* printed $got"
}

# user COMMAND...: runs it as an ordinary user.
user() {
    setpriv --reuid 1000 --regid 1000 --clear-groups "$@"
}

# words COMMAND...: prints what it prints, with single spaces.
words() {
    # The words are meant to be split.
    # shellcheck disable=SC2005,SC2046
    echo $("$@")
}

mkdir -p /tmp && chmod 1777 /tmp && cd /tmp || exit 1
export HOME=/tmp LC_ALL=C

case $1 in
unshare)
    is 'uid=0(root) gid=0(root) groups=0(root)' unshare -Ur id
    is 'uid=0(root) gid=0(root) groups=0(root)' user unshare -Ur id
    is 'uid=65534(nobody) gid=65534(nogroup) groups=65534(nogroup)' user unshare -U id
    is 1000 user unshare -U --map-user=1000 id -u
    is '         0       1000          1' user unshare -Ur cat /proc/self/uid_map
    is inside user unshare -Uru sh -c 'hostname inside; hostname'
    user unshare -Ur sh -c 'hostname outside' 2> /dev/null && fail "the machine got a name"
    user unshare -Ur sh -c 'echo x > /proc/sys/kernel/hostname' 2> /dev/null && fail "by a setting"
    user unshare -Ur cat /etc/shadow > /dev/null 2>&1 && fail "a secret was read"
    user unshare -Ur sh -c 'chown root /etc/passwd' 2> /dev/null && fail "a file was taken"
    user unshare -Ur sh -c 'kill -0 1' 2> /dev/null && fail "the first process could be ended"
    ;;
mounts)
    inside='mount -t tmpfs none /mnt && echo here > /mnt/f && cat /mnt/f && umount /mnt'
    is here unshare -Urm sh -c "$inside"
    is here user unshare -Urm sh -c "$inside"
    [ ! -e /mnt/f ] || fail "it is outside"
    user unshare -Urm sh -c 'umount /proc' 2> /dev/null && fail "what hides was unmounted"
    user unshare -Urm sh -c 'mount -t proc none /proc' 2> /dev/null && fail "proc was mounted"
    user unshare -Urm sh -c 'mount -o remount,rw /' 2> /dev/null && fail "the root was changed"
    mkdir new
    chown 1000 new
    user unshare -Urm sh -ec 'mount --rbind / new; cd new; mkdir tmp/old
        pivot_root . tmp/old; cd /; umount -l tmp/old; rmdir tmp/old
        mount -t tmpfs none /mnt; echo > /mnt/f' || fail "the root was not changed"
    [ ! -e /mnt/f ] || fail "it is outside"
    ;;
processes)
    is 1 unshare -pf sh -c 'echo $$'
    is 1 user unshare -Urpf sh -c 'echo $$'
    is '1 ps' words user unshare -Urpf --mount-proc ps axo pid=,comm=
    is '1 0 sh' words user unshare -Urpf --mount-proc sh -c 'ps -o pid=,ppid=,comm= -p 1; :'
    is '1 2' user unshare -Urpf --mount-proc sh -c 'sh -c "echo \$PPID \$\$"; :'
    is 1 words user unshare -Urpf --mount-proc readlink /proc/self
    user unshare -Urpf sh -c 'kill -0 2 || kill -9 1' 2> /dev/null || fail "number 1 was ended"
    # All that began inside ends with the first.
    unshare -pf sh -c 'sleep 1000 & sleep 1001 &'
    pgrep -x sleep && fail "something lives on"
    unshare -pf --kill-child sh -c 'sleep 1002; :' &
    until pgrep -x sleep > /dev/null; do :; done
    kill -9 $!
    while pgrep -x sleep > /dev/null; do :; done
    ;;
network)
    is '1: lo: <LOOPBACK> mtu 65536' sh -c 'unshare -rn ip addr | head -1 | cut -d" " -f1-5'
    is 1 sh -c 'unshare -rn ip -o link | wc -l'
    is 0 sh -c 'unshare -rn ip -o addr | wc -l'
    up='ip link set lo up;'
    is '127.0.0.1/8 ::1/128' words user unshare -Urn sh -c \
        "$up ip -o addr | tr -s ' ' | cut -d' ' -f4"
    user unshare -Urn sh -c "$up ping -c1 -W5 127.0.0.1" > /dev/null || fail "no answer"
    user unshare -Urn sh -c "$up ping -c1 -W5 ::1" > /dev/null || fail "no answer"
    user unshare -Urn sh -c "ping -c1 127.0.0.1" > /dev/null 2>&1 && fail "a way without lo"
    user unshare -Urn sh -c "$up ping -c1 10.0.2.2" > /dev/null 2>&1 && fail "a way out"
    user unshare -Urn ip link add type dummy 2> /dev/null && fail "a dummy"
    user unshare -Ur ip link set lo down 2> /dev/null && fail "the machine's interface was changed"
    ip link show lo | grep -q LOOPBACK,UP || fail "lo is down"
    # A server that is not reached from outside, on a port that is taken outside.
    mkdir -p outside inside
    echo outside > outside/index.html
    echo inside > inside/index.html
    busybox httpd -p 127.0.0.1:8080 -h outside
    get='busybox wget -qO- http://127.0.0.1:8080/'
    is outside $get
    is inside user unshare -Urn sh -c "$up busybox httpd -p 8080 -h inside; $get"
    user unshare -Urn sh -c "$up $get" 2> /dev/null && fail "the server of outside was reached"
    user unshare -Urn sh -c "$up busybox httpd -p 8081 -h inside; sleep 5" &
    sleep 1
    busybox wget -qO- http://127.0.0.1:8081/ 2> /dev/null && fail "that of inside was reached"
    is outside $get
    kill $!
    ;;
bubblewrap)
    sandbox='bwrap --ro-bind / / --unshare-user --unshare-uts --unshare-ipc'
    is 'uid=0(root) gid=0(root) groups=0(root)' $sandbox -- id
    is 1000 user $sandbox -- id -u
    is 7 user $sandbox --uid 7 -- id -u
    is inside user $sandbox --hostname inside -- hostname
    is here user $sandbox --tmpfs /mnt -- sh -c 'echo here > /mnt/f; cat /mnt/f'
    user $sandbox -- sh -c 'echo > /tmp/written' 2> /dev/null && fail "a file was written"
    is 'CapEff:	0000000000000000' user $sandbox -- grep CapEff /proc/self/status
    is yes user $sandbox --bind /tmp /tmp -- sh -c 'echo yes > /tmp/written; cat /tmp/written'
    [ "$(cat /tmp/written)" = yes ] || fail "a file was not written"
    sandbox="$sandbox --unshare-pid --proc /proc"
    is 2 user $sandbox -- sh -c 'echo $$'
    is '1 2' words user $sandbox -- sh -c 'ps axo pid= | head -2'
    is bwrap user $sandbox -- ps -o comm= -p 1
    is yes user $sandbox --as-pid-1 -- sh -c '[ $$ = 1 ] && echo yes'
    user $sandbox -- sh -c 'kill -9 1; ls /proc/self/ns' > /dev/null || fail "the init was ended"
    user $sandbox --die-with-parent -- sh -c 'sleep 1003 & exit 3'
    [ $? = 3 ] || fail "another status"
    while pgrep -x sleep > /dev/null; do :; done
    sandbox='bwrap --ro-bind / / --unshare-net'
    is 1 sh -c "$sandbox -- ip -o link | wc -l"
    is '127.0.0.1/8 ::1/128' words user $sandbox -- sh -c \
        "ip -o addr | tr -s ' ' | cut -d' ' -f4"
    is 'CapEff:	0000000000000000' user $sandbox -- grep CapEff /proc/self/status
    user $sandbox -- sh -c 'busybox wget -qO- http://10.0.2.2/' 2> /dev/null && fail "a way out"
    is 2 user bwrap --ro-bind / / --unshare-all --proc /proc -- sh -c 'echo $$'
    is '127.0.0.1/8 ::1/128' words user bwrap --ro-bind / / --unshare-all --proc /proc -- sh -c \
        "ip -o addr | tr -s ' ' | cut -d' ' -f4"
    ;;
dev)
    # Terminals of its own, and none of others.
    exec 3<> /dev/ptmx
    sandbox='bwrap --ro-bind / / --dev /dev'
    for user in user ''; do
        is 'ptmx' $user $sandbox -- ls /dev/pts
        is '/dev/pts/0 ptmx' words $user $sandbox -- sh -c \
            'script -qc "tty; ls /dev/pts | grep -v 0" /dev/null | tr -d "\r"'
        is 'console? no' $user $sandbox -- sh -c 'ls /dev/hvc0 2> /dev/null || echo "console? no"'
    done
    exec 3>&-
    ;;
propagation)
    kind() { findmnt -no PROPAGATION "$1"; }
    is private kind /
    mount --make-rshared / || fail "it is not shared"
    is shared kind /
    is private unshare -m findmnt -no PROPAGATION /
    is shared unshare -m --propagation unchanged findmnt -no PROPAGATION /
    is private,slave unshare -m --propagation slave findmnt -no PROPAGATION /
    is private,slave user unshare -Urm --propagation unchanged findmnt -no PROPAGATION /
    # A mount of outside arrives, and one of inside does not leave.
    mkdir -p here there
    mkfifo go
    unshare -m --propagation slave sh -ec 'mount -t tmpfs none there; echo > go
        read _ < go; cat here/f; umount there' > got &
    read -r _ < go
    mountpoint -q there && fail "it left"
    mount -t tmpfs none here
    echo arrived > here/f
    echo > go
    wait $! || fail "inside: $?"
    is arrived cat got
    umount here || fail "it is in use"
    mount --make-rprivate /
    is private kind /
    ;;
runc)
    mountpoint -q /sys/fs/cgroup || fail "no control groups"
    mkdir -p bundle/rootfs/bin bundle/rootfs/proc bundle/rootfs/sys bundle/rootfs/dev
    for tool in sh id hostname ps ls echo cat sleep mount mknod; do
        ln -s busybox bundle/rootfs/bin/$tool
    done
    cp /bin/busybox bundle/rootfs/bin
    chown -R 1000:1000 bundle
    mkdir -m 700 run
    chown 1000 run
    export XDG_RUNTIME_DIR=/tmp/run
    cd bundle || exit 1
    runc spec --rootless
    # container COMMAND: makes the bundle one that runs it.
    container() {
        sed -e 's/"terminal": true/"terminal": false/' -e 's/"hostID": 0/"hostID": 1000/' \
            -e "s#\"rootfs\"#\"/tmp/bundle/rootfs\"#" \
            -e "s#\"sh\"\$#\"sh\", \"-c\", \"$1\"#" config.json > next.json
        mkdir -p "$2"
        mv next.json "$2/config.json"
    }
    container 'echo hello; id -u; hostname; exit 7' first
    got=$(user runc run -b first c1)
    [ $? = 7 ] || fail "another status"
    is 'hello 0 runc' echo $got
    container 'ps -o pid,comm' second
    is 'PID COMMAND 1 ps' words user runc run -b second c2
    container 'echo x > /f' third
    user runc run -b third c3 2> /dev/null && fail "its root was written"
    container 'sleep 1000' fourth
    user runc run -d -b fourth c4 > /dev/null 2>&1 < /dev/null || fail "it was not started"
    is 'running' sh -c "$(command -v setpriv) --reuid 1000 --regid 1000 --clear-groups \
        runc list -f json | grep -o running"
    is 'in it' user runc exec c4 echo in it
    is 'runc' user runc exec c4 hostname
    user runc kill c4 KILL || fail "it was not killed"
    until user runc delete c4 2> /dev/null; do sleep 0.1; done
    pgrep -x sleep && fail "it lives on"
    # By root: with devices, limits and a pause.
    rm config.json && runc spec
    container 'echo hello; ls /dev/pts; exit 7' fifth
    got=$(runc run -b fifth c5)
    [ $? = 7 ] || fail "another status"
    is 'hello ptmx' echo $got
    container 'mknod /dev/null2 c 1 3; cat /dev/null2; mknod /dev/mem c 1 1; cat /dev/mem' sixth
    sed -i 's/"CAP_KILL"/"CAP_KILL", "CAP_MKNOD"/' sixth/config.json
    got=$(runc run -b sixth c6 2>&1) && fail "memory was read: $got"
    is "cat: can't open '/dev/mem': Operation not permitted" echo "$got"
    container 'sleep 1000' seventh
    sed -i 's/"resources": {/"resources": { "memory": { "limit": 16777216 },/' seventh/config.json
    runc run -d -b seventh c7 > /dev/null 2>&1 < /dev/null || fail "it was not started"
    is 16777216 runc exec c7 cat /sys/fs/cgroup/memory.max
    runc pause c7 || fail "it was not frozen"
    is '"paused"' sh -c "runc state c7 | grep -o '\"paused\"'"
    runc resume c7 && runc update --pids-limit 20 c7 || fail "it was not changed"
    is 20 runc exec c7 cat /sys/fs/cgroup/pids.max
    runc delete -f c7
    pgrep -x sleep && fail "it lives on"
    ;;
systemd)
    # It removes what lies in /tmp.
    cd /root || exit 1
    # systemd as the first process of a container, and what its services may use.
    [ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 none /sys/fs/cgroup || fail "no groups"
    echo '+cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control || fail "no controllers"
    mkdir /sys/fs/cgroup/box
    cat > /etc/systemd/system/job.service << 'END'
[Unit]
DefaultDependencies=no
Requires=basic.target
After=basic.target dbus.socket
[Service]
Type=oneshot
ExecStart=/bin/sh /root/job
END
    cat > job << 'END'
exec > /root/said 2>&1
# as NAME PROPERTIES SCRIPT: has a script run as a service with these properties.
as() {
    echo "$1"
    script=$3
    set -- $(for word in $2; do echo "--property=$word"; done)
    systemd-run --quiet --wait --pipe "$@" sh -c "$script"
    echo "status $?"
}
own() { echo '/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)'; }
as plain '' 'echo hello; exit 7'
as tasks TasksMax=5 "cat $(own)/pids.max; for i in 1 2 3 4 5 6; do sleep 1 & done 2> /dev/null"
as memory 'MemoryMax=16M MemorySwapMax=0' \
    "cat $(own)/memory.max; head -c 64M /dev/zero | tail > /dev/null"
as quota CPUQuota=20% "cat $(own)/cpu.max"
as time RuntimeMaxSec=1 'sleep 100'
as user 'DynamicUser=yes PrivateTmp=yes' \
    '[ $(id -u) -gt 60000 ] && touch /tmp/mine && ! touch /etc/x'
systemd-run --quiet --scope -p TasksMax=7 sh -c "cat $(own)/pids.max"
systemctl is-active basic.target dbus.service
systemctl --force poweroff
END
    [ -e /proc/1/cmdline ] || fail "no proc"
    # To switch off, the first process of a container ends (pid_namespaces(7)).
    unshare --pid --fork --mount --ipc --uts --mount-proc sh -c '
        echo 0 > /sys/fs/cgroup/box/cgroup.procs
        exec unshare --cgroup sh -c "
            mount -t tmpfs tmpfs /run && mkdir /run/lock && umount /sys/fs/cgroup &&
            mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
            exec env -i container=test /lib/systemd/systemd --unit=job.service"' > log 2>&1
    [ $? = 130 ] || { cat log; fail "it ended otherwise"; }
    wanted='plain hello status 7 tasks 5 status 2 memory 16777216 status 1 quota 20000 100000'
    wanted="$wanted status 0 time status 1 user status 0 7 active active"
    got=$(grep -av -e '^Killed' -e 'Cannot fork' -e 'Broken pipe' -e '^touch' said | tr '\n' ' ')
    [ "$got" = "$wanted " ] || fail "$got"
    ;;
*)
    fail "no check $1"
    ;;
esac
echo done
