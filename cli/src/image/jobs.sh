# jobs ROOT: something to do for ordinary tools: the examples for a compiler in /usr/src, and the
# source of a package in /usr/src/package, as its authors published it, to be made by make.
jobs() {
    examples "$1"
    mkdir "$1/usr/src/package"
    tar -x --strip-components=1 --no-same-owner -f "$HAYATE_SOURCE" -C "$1/usr/src/package"
}
