/*
 * The smallest useful program: it exits with the number of its arguments less one. Written without
 * a C library, so that its start costs only the work of the kernel.
 */
__attribute__((used, noreturn)) static void begin(long *stack) {
    long status = stack[0] - 1; /* argc, psABI 3.4.1 */
    __asm__ volatile("syscall" : : "a"(231L /* exit_group */), "D"(status) : "rcx", "r11", "memory");
    __builtin_unreachable();
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n call begin\n");
