# settle ROOT PACKAGE...: a root file system of Debian packages, without running their scripts.
settle() {
    root=$1
    shift
    mkdir -p "$root"
    chmod 755 "$root"
    # Debian merges /bin, /sbin and /lib into /usr; packages may still carry the old paths.
    for name in bin sbin lib lib64; do
        mkdir -p "$root/usr/$name"
        ln -s "usr/$name" "$root/$name"
    done
    for package; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -p --keep-directory-symlink -C "$root" \
            --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
            --exclude='./usr/share/info/*' --exclude='./usr/share/lintian/*' \
            --exclude='./usr/share/doc/*/[!c]*' --exclude='./usr/share/doc/*/changelog*'
    done
    cd "$root"
    mkdir -p dev proc sys run tmp var/tmp root home etc mnt
    chmod 1777 tmp var/tmp
    chmod 700 root

    # base-passwd
    cp usr/share/base-passwd/passwd.master etc/passwd
    cp usr/share/base-passwd/group.master etc/group
    # An ordinary user, to try permissions with.
    echo 'user:x:1000:1000:User:/home/user:/bin/bash' >>etc/passwd
    echo 'user:x:1000:' >>etc/group
    mkdir -p home/user
    chown 1000:1000 home/user
    sed 's/:.*/:*:19723:0:99999:7:::/' etc/passwd >etc/shadow
    chmod 640 etc/shadow
    chown 0:42 etc/shadow

    # base-files, libc-bin
    for file in base-files/profile base-files/nsswitch.conf libc-bin/nsswitch.conf; do
        name=etc/${file##*/}
        [ -e "$name" ] || [ ! -e "usr/share/$file" ] || cp "usr/share/$file" "$name"
    done
    cp usr/share/base-files/dot.profile root/.profile
    cp usr/share/base-files/dot.bashrc root/.bashrc
    cp usr/share/base-files/dot.profile home/user/.profile
    chown 1000:1000 home/user/.profile
    : >etc/motd
    ln -sf /proc/mounts etc/mtab
    [ -e var/run ] || ln -s /run var/run
    [ -e var/lock ] || ln -s /run/lock var/lock

    echo hayate >etc/hostname
    printf '127.0.0.1\tlocalhost\n127.0.1.1\thayate\n::1\tlocalhost\n' >etc/hosts
    : >etc/resolv.conf
    : >etc/fstab
    printf '/bin/sh\n/bin/bash\n/bin/dash\n' >etc/shells
    printf "PS1='\\\\u@\\\\h:\\\\w\\\\$ '\\nalias ls='ls --color=auto'\\n" >>root/.bashrc

    # dash; alternatives
    [ -e usr/bin/sh ] || ln -s dash usr/bin/sh
    choose awk /usr/bin/mawk
    choose nawk /usr/bin/mawk
    choose pager /usr/bin/less
    choose which /usr/bin/which.debianutils

    # libc-bin: the cache of the dynamic linker
    ldconfig -r "$root"

    # python3-minimal, libpython3-stdlib: compiled modules, by the image's own Python, run by the
    # image's own dynamic linker, for the host may have another.
    linker=$root/lib64/ld-linux-x86-64.so.2
    for python in usr/bin/python3.[0-9] usr/bin/python3.[0-9][0-9]; do
        [ -x "$python" ] || continue
        library=usr/lib/${python##*/}
        (
            unset LD_PRELOAD
            PYTHONHOME=$root/usr "$linker" --library-path "$root/usr/lib/x86_64-linux-gnu" \
                "$root/$python" -I -S -m compileall -q -s "$root" -p / \
                --invalidation-mode unchecked-hash "$root/$library"
        )
    done
    cd /
}

# choose NAME PROGRAM: sets up the links that update-alternatives would set up.
choose() {
    [ -e "$root$2" ] || return 0
    mkdir -p etc/alternatives
    ln -sf "$2" "etc/alternatives/$1"
    [ -e "usr/bin/$1" ] || ln -sf "/etc/alternatives/$1" "usr/bin/$1"
}
