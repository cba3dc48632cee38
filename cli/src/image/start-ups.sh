# start_ups ROOT: something for programs to start with in /usr/src, and a command that makes the rest
# in memory before it turns into its arguments: a repository of 100 files, and a program in C++.
start_ups() {
    mkdir -p "$1/usr/src" "$1/usr/local/bin"
    printf '#include <stdio.h>\n\nint main(void)\n{\n    printf("hello, world\\n");\n}\n' \
        >"$1/usr/src/hello.c"
    printf '#include <iostream>\n\nint main()\n{\n    std::cout << "hello, world" << std::endl;\n}\n' \
        >"$1/usr/src/hello.cc"
    cat >"$1/usr/local/bin/start-ups" <<'SCRIPT'
#!/bin/sh
set -e
g++ -O2 -o /tmp/hello-c++ /usr/src/hello.cc
mkdir /tmp/repository
cd /tmp/repository
for file in 0 1 2 3 4 5 6 7 8 9; do
    mkdir $file
    for line in 0 1 2 3 4 5 6 7 8 9; do
        echo "file $file, line $line" >$file/$line
    done
done
git init -q .
git add .
git -c user.name=user -c user.email=user@localhost commit -q -m 'a hundred files'
cd /
# All that the programs read is in memory then: no start waits for a disk.
for word in 1 2; do
    bash -c : && awk 'BEGIN{}' && perl -e 1 && python3 -c 'import zipimport' && /tmp/hello-c++ &&
        gcc -c -o /tmp/hello.o /usr/src/hello.c && git -C /tmp/repository status && node -e 1
done >/dev/null
exec "$@"
SCRIPT
    chmod 755 "$1/usr/local/bin/start-ups"
    # The linker's plugin and the compilers of other times: nothing here asks for them.
    rm -rf "$1"/usr/lib/gcc/x86_64-linux-gnu/*/lto1 "$1"/usr/bin/*lto-dump* \
        "$1"/usr/lib/gcc/x86_64-linux-gnu/*/lib[atlu]san*.a "$1"/usr/share/doc
}
