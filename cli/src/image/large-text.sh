# large ROOT: a program in /p with 40 MiB of text, of which it reads 400 pages, evenly spread. It
# writes to its data and exits.
large() {
    mkdir -p "$1/p"
    cat >"$scratch/large.S" <<'END'
        .text
        .globl  _start
text:
_start: lea     text(%rip), %rsi
        mov     $400, %ecx
1:      mov     (%rsi), %al
        add     $(25 * 4096), %rsi
        dec     %ecx
        jnz     1b
        incl    number(%rip)
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        .fill   40 * 1024 * 1024 - 0x1000, 1, 0x90
        .data
number: .quad   0
        .section .note.GNU-stack,"",@progbits
END
    # Headers and text in one segment, which begins at a large page.
    cc -nostdlib -static -Wl,-z,noseparate-code -Wl,--build-id=none -o "$1/p/large" "$scratch/large.S"
}
