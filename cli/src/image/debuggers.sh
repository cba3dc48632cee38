# A program with names for a debugger.
debugged() {
    mkdir -p "$1/p"
    cat > "$1/p/sum.c" <<'END'
#include <stdio.h>

static int total;

static int square(int number) { return number * number; }

static void add(int number) { total += square(number); }

int main(void) {
    for (int number = 1; number <= 3; number++)
        add(number);
    printf("%d\n", total);
    return total;
}
END
    gcc -g -O0 -fno-pie -no-pie -fdebug-prefix-map="$1=" -o "$1/p/sum" "$1/p/sum.c"
    printf 'all: one two\none two:\n\t@echo $@ | sed s/o/0/\n' > "$1/p/Makefile"
}
