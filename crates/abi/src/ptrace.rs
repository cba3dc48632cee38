//! Tracing of processes: requests, options, events, structures (`ptrace(2)`,
//! `include/uapi/linux/ptrace.h`, `arch/x86/include/uapi/asm/ptrace-abi.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! numbers {
    ($($name:ident = $value:literal;)*) => {
        $(#[allow(missing_docs, reason = "named as in ptrace(2)")]
        pub const $name: i64 = $value;)*
    };
}

numbers! {
    PTRACE_TRACEME = 0;
    PTRACE_PEEKTEXT = 1;
    PTRACE_PEEKDATA = 2;
    PTRACE_PEEKUSER = 3;
    PTRACE_POKETEXT = 4;
    PTRACE_POKEDATA = 5;
    PTRACE_POKEUSER = 6;
    PTRACE_CONT = 7;
    PTRACE_KILL = 8;
    PTRACE_SINGLESTEP = 9;
    PTRACE_GETREGS = 12;
    PTRACE_SETREGS = 13;
    PTRACE_GETFPREGS = 14;
    PTRACE_SETFPREGS = 15;
    PTRACE_ATTACH = 16;
    PTRACE_DETACH = 17;
    PTRACE_SYSCALL = 24;
    PTRACE_SYSEMU = 31;
    PTRACE_SYSEMU_SINGLESTEP = 32;
    PTRACE_SETOPTIONS = 0x4200;
    PTRACE_GETEVENTMSG = 0x4201;
    PTRACE_GETSIGINFO = 0x4202;
    PTRACE_SETSIGINFO = 0x4203;
    PTRACE_GETREGSET = 0x4204;
    PTRACE_SETREGSET = 0x4205;
    PTRACE_SEIZE = 0x4206;
    PTRACE_INTERRUPT = 0x4207;
    PTRACE_LISTEN = 0x4208;
    PTRACE_PEEKSIGINFO = 0x4209;
    PTRACE_GETSIGMASK = 0x420a;
    PTRACE_SETSIGMASK = 0x420b;
    PTRACE_GET_SYSCALL_INFO = 0x420e;
    PTRACE_GET_RSEQ_CONFIGURATION = 0x420f;
}

#[allow(missing_docs, reason = "named as in ptrace(2)")]
mod events {
    pub const PTRACE_EVENT_FORK: u32 = 1;
    pub const PTRACE_EVENT_VFORK: u32 = 2;
    pub const PTRACE_EVENT_CLONE: u32 = 3;
    pub const PTRACE_EVENT_EXEC: u32 = 4;
    pub const PTRACE_EVENT_VFORK_DONE: u32 = 5;
    pub const PTRACE_EVENT_EXIT: u32 = 6;
    pub const PTRACE_EVENT_SECCOMP: u32 = 7;
    pub const PTRACE_EVENT_STOP: u32 = 128;

    pub const PTRACE_EVENTMSG_SYSCALL_ENTRY: u64 = 1;
    pub const PTRACE_EVENTMSG_SYSCALL_EXIT: u64 = 2;

    pub const PTRACE_O_TRACESYSGOOD: u32 = 1;
    pub const PTRACE_O_EXITKILL: u32 = 1 << 20;
    /// The options that there are, but `PTRACE_O_SUSPEND_SECCOMP`: each event's bit, and two.
    pub const PTRACE_O_KNOWN: u32 = 0xff | PTRACE_O_EXITKILL;

    pub const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;

    pub const PTRACE_SYSCALL_INFO_NONE: u8 = 0;
    pub const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
    pub const PTRACE_SYSCALL_INFO_EXIT: u8 = 2;
    pub const PTRACE_SYSCALL_INFO_SECCOMP: u8 = 3;

    pub const NT_PRSTATUS: usize = 1;
    pub const NT_PRFPREG: usize = 2;
    pub const NT_X86_XSTATE: usize = 0x202;

    /// `AUDIT_ARCH_X86_64`
    pub const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
}
pub use events::*;

/// The registers of `struct user_regs_struct`.
pub const USER_REGISTERS: usize = 27;
/// `offsetof(struct user, u_debugreg)`.
pub const USER_DEBUG: usize = 848;
/// `sizeof(struct user)`.
pub const USER_SIZE: usize = 928;

/// `struct ptrace_peeksiginfo_args`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PeekSiginfo {
    /// The first signal of the queue that is wanted.
    pub off: u64,
    /// `PTRACE_PEEKSIGINFO_*`.
    pub flags: u32,
    /// How many are wanted.
    pub nr: i32,
}

/// `struct ptrace_syscall_info`, as far as it is written for an entry or an exit.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SyscallInfo {
    /// `PTRACE_SYSCALL_INFO_*`.
    pub op: u8,
    /// Padding.
    pub pad: [u8; 3],
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// The address behind the instruction.
    pub instruction_pointer: u64,
    /// The stack pointer.
    pub stack_pointer: u64,
    /// Entry and filter: the number and six arguments. Exit: the result, and whether it is an error.
    pub words: [u64; 7],
    /// Filter: what it tells the tracer.
    pub data: u32,
    /// Padding.
    pub end: u32,
}

impl SyscallInfo {
    /// How many bytes there are without either.
    pub const NONE_SIZE: usize = 24;
    /// How many bytes there are of an entry.
    pub const ENTRY_SIZE: usize = 80;
    /// How many bytes there are of a filter's stop.
    pub const SECCOMP_SIZE: usize = 84;
    /// How many bytes there are of an exit.
    pub const EXIT_SIZE: usize = 33;
}

/// `struct ptrace_rseq_configuration` of `PTRACE_GET_RSEQ_CONFIGURATION`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in linux/ptrace.h")]
pub struct RseqConfiguration {
    pub rseq_abi_pointer: u64,
    pub rseq_abi_size: u32,
    pub signature: u32,
    pub flags: u32,
    pub pad: u32,
}
