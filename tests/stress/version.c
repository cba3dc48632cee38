/*
 * A program that says which version of it this is: every page of its text, constants and data bears
 * the number, which the test writes into the file after each mark. The exit status is the number
 * modulo 200 when all pages bear the same one, 201 when they do not, 202 when memory that must be
 * zero is not. It ends after it wrote on what the next start must not see.
 */
#define PAGES 4
#define MARKS                                                                                       \
    ".rept 4\n .balign 4096\n .ascii \"HAYATEV:\"\n .quad 0\n .endr\n"

__asm__(".section .text\n .globl in_text\n .balign 4096\n in_text:\n" MARKS
        ".section .rodata\n .globl in_constants\n .balign 4096\n in_constants:\n" MARKS
        ".section .data\n .globl in_data\n .balign 4096\n in_data:\n" MARKS ".balign 4096\n"
        ".section .text\n .globl _start\n_start: mov %rsp, %rdi\n call begin\n");

struct page {
    unsigned long mark, version, rest[510];
};
extern const volatile struct page in_text[PAGES], in_constants[PAGES];
extern volatile struct page in_data[PAGES];
static volatile struct page in_bss[PAGES];

/* Whether all pages bear the version. The last page of text goes on with other text. */
static int all_are(const volatile struct page *page, unsigned long version) {
    int good = 1;
    for (int i = 0; i < PAGES; i++)
        good &= page[i].version == version;
    return good;
}

__attribute__((used, noreturn)) static void begin(void) {
    unsigned long version = in_text[0].version, status = version % 200;
    volatile unsigned long deep[1024];
    for (int i = 0; i < PAGES; i++)
        if (in_bss[i].mark || in_bss[i].version || in_bss[i].rest[509] || in_data[i].rest[i])
            status = 202;
    if (!all_are(in_text, version) || !all_are(in_constants, version) || !all_are(in_data, version))
        status = 201;
    for (int i = 0; i < PAGES; i++) {
        in_bss[i].mark = in_bss[i].version = in_bss[i].rest[509] = ~0ul;
        in_data[i].version = in_data[i].rest[i] = 0x5a5a5a5a;
    }
    for (int i = 0; i < 1024; i++)
        deep[i] = ~0ul;
    __asm__ volatile("" : : "r"(deep) : "memory");
    __asm__ volatile("syscall" : : "a"(231L /* exit_group */), "D"(status) : "rcx", "r11", "memory");
    __builtin_unreachable();
}
