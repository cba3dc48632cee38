# examples ROOT: something to compile. hello.c is the smallest program that prints; ten/ is a
# program of ten files of some 8 KiB each, with a Makefile.
examples() {
    src=$1/usr/src
    mkdir -p "$src/ten"
    : >"$src/empty"
    cat >"$src/hello.c" <<'END'
#include <stdio.h>

int main(void)
{
    printf("hello, world\n");
    return 0;
}
END
    for file in 0 1 2 3 4 5 6 7 8 9; do
        {
            printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n'
            function=0
            while [ $function -lt 20 ]; do
                cat <<END
int f${file}_$function(const char *text, int times)
{
    char *copy = malloc(strlen(text) * 2 + 32);
    int sum = 0;

    if (!copy)
        return -1;
    for (int i = 0; i < times; i++) {
        sprintf(copy, "%s %d of %d", text, i, $function);
        for (char *at = copy; *at; at++)
            sum = sum * 31 + (*at ^ $file);
    }
    free(copy);
    return sum;
}

END
                function=$((function + 1))
            done
            if [ $file = 0 ]; then
                printf 'int main(void)\n{\n    printf("%%d\\n", f0_0("text", 10));\n    return 0;\n}\n'
            fi
        } >"$src/ten/f$file.c"
    done
    {
        printf 'CC = gcc\nCFLAGS = -O1\n'
        printf 'all: /tmp/ten\n/tmp/ten: %s\n\t$(CC) -o $@ $^\n' \
            "$(printf '/tmp/f%s.o ' 0 1 2 3 4 5 6 7 8 9)"
        printf '/tmp/%%.o: %%.c\n\t$(CC) $(CFLAGS) -c -o $@ $<\n'
    } >"$src/ten/Makefile"
    # The linker's plugin and the compilers of other times: nothing here asks for them.
    rm -rf "$1"/usr/lib/gcc/x86_64-linux-gnu/*/lto1 "$1"/usr/bin/*lto-dump* \
        "$1"/usr/lib/gcc/x86_64-linux-gnu/*/lib[atlu]san*.a "$1"/usr/share/doc
}
