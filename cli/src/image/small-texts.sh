# texts ROOT: programs in /p that execute or read each page of their text once and exit. Their text
# has 4 to 64 KiB; `static` has a fixed address, `pie` may lie anywhere, `dynamic` needs the dynamic
# linker and the C library.
texts() {
    mkdir -p "$1/p"
    for kib in 4 8 16 32 64; do
        cat >"$scratch/small.S" <<END
        .text
        .globl  _start
_start: lea     text(%rip), %rsi
        mov     \$$((kib / 4)), %ecx
1:      mov     (%rsi), %al
        add     \$4096, %rsi
        dec     %ecx
        jnz     1b
        incl    number(%rip)
        mov     \$60, %eax
        xor     %edi, %edi
        syscall
        .balign 64
text:   .fill   $kib * 1024 - 128, 1, 0x90
        .section .rodata
        .fill   256, 1, 7
        .data
number: .quad   0
        .section .note.GNU-stack,"",@progbits
END
        # The C library is not called; the dynamic linker loads it all the same.
        cc -nostdlib -static -o "$1/p/static-$kib" "$scratch/small.S"
        cc -nostdlib -static-pie -o "$1/p/pie-$kib" "$scratch/small.S"
        cc -nostdlib -pie -Wl,--no-as-needed -o "$1/p/dynamic-$kib" "$scratch/small.S" -lc
    done
}
