//! Signals: numbers, sets, `siginfo_t`, and the frame a handler runs on (`signal(7)`,
//! `sigaction(2)`, `arch/x86/include/uapi/asm/sigcontext.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Signal numbers are 1..=64.
pub const NSIG: u32 = 64;
/// The first realtime signal as the kernel counts (the C library reserves two for itself).
pub const SIGRTMIN: u32 = 32;

macro_rules! signals {
    ($($number:literal $name:ident)*) => {
        $(#[allow(missing_docs, reason = "named as in signal(7)")] pub const $name: u32 = $number;)*

        /// The name of a signal, `"SIGINT"`; `None` for realtime and unknown numbers.
        pub const fn name(signal: u32) -> Option<&'static str> {
            match signal { $($number => Some(stringify!($name)),)* _ => None }
        }
    };
}

signals! {
    1 SIGHUP 2 SIGINT 3 SIGQUIT 4 SIGILL 5 SIGTRAP 6 SIGABRT 7 SIGBUS 8 SIGFPE 9 SIGKILL
    10 SIGUSR1 11 SIGSEGV 12 SIGUSR2 13 SIGPIPE 14 SIGALRM 15 SIGTERM 16 SIGSTKFLT 17 SIGCHLD
    18 SIGCONT 19 SIGSTOP 20 SIGTSTP 21 SIGTTIN 22 SIGTTOU 23 SIGURG 24 SIGXCPU 25 SIGXFSZ
    26 SIGVTALRM 27 SIGPROF 28 SIGWINCH 29 SIGIO 30 SIGPWR 31 SIGSYS
}

/// The default action.
pub const SIG_DFL: u64 = 0;
/// Ignore the signal.
pub const SIG_IGN: u64 = 1;

#[allow(missing_docs, reason = "named as in sigaction(2)")]
mod flags {
    pub const SA_NOCLDSTOP: u64 = 0x1;
    pub const SA_NOCLDWAIT: u64 = 0x2;
    pub const SA_SIGINFO: u64 = 0x4;
    pub const SA_RESTORER: u64 = 0x0400_0000;
    pub const SA_ONSTACK: u64 = 0x0800_0000;
    pub const SA_RESTART: u64 = 0x1000_0000;
    pub const SA_NODEFER: u64 = 0x4000_0000;
    pub const SA_RESETHAND: u64 = 0x8000_0000;

    pub const SS_ONSTACK: i32 = 1;
    pub const SS_DISABLE: i32 = 2;
    pub const SS_AUTODISARM: i32 = i32::MIN;

    pub const SI_USER: i32 = 0;
    pub const SI_KERNEL: i32 = 0x80;
    pub const SI_QUEUE: i32 = -1;
    pub const SI_TIMER: i32 = -2;
    pub const SI_MESGQ: i32 = -3;
    pub const SI_ASYNCIO: i32 = -4;
    pub const SI_SIGIO: i32 = -5;
    pub const SI_TKILL: i32 = -6;

    pub const ILL_ILLOPN: i32 = 2;
    pub const FPE_INTDIV: i32 = 1;
    pub const FPE_FLTDIV: i32 = 3;
    pub const FPE_FLTOVF: i32 = 4;
    pub const FPE_FLTUND: i32 = 5;
    pub const FPE_FLTRES: i32 = 6;
    pub const FPE_FLTINV: i32 = 7;
    pub const SYS_SECCOMP: i32 = 1;
    pub const SEGV_MAPERR: i32 = 1;
    pub const SEGV_ACCERR: i32 = 2;
    pub const BUS_ADRALN: i32 = 1;
    pub const BUS_ADRERR: i32 = 2;
    pub const TRAP_BRKPT: i32 = 1;
    pub const TRAP_TRACE: i32 = 2;
    pub const CLD_EXITED: i32 = 1;
    pub const CLD_KILLED: i32 = 2;
    pub const CLD_DUMPED: i32 = 3;
    pub const CLD_TRAPPED: i32 = 4;
    pub const CLD_STOPPED: i32 = 5;
    pub const CLD_CONTINUED: i32 = 6;
    pub const POLL_IN: i32 = 1;
}
pub use flags::*;

/// The bit of a signal in a [`SignalSet`] word.
pub const fn bit(signal: u32) -> u64 {
    if signal >= 1 && signal <= NSIG { 1 << (signal - 1) } else { 0 }
}

/// The kernel's `sigset_t`: 64 signals.
pub type SignalSet = u64;

/// The kernel's `struct sigaction` on x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sigaction {
    /// [`SIG_DFL`], [`SIG_IGN`] or the handler's address.
    pub sa_handler: u64,
    /// `SA_*`.
    pub sa_flags: u64,
    /// Where the handler returns to (`SA_RESTORER`, obligatory on x86-64).
    pub sa_restorer: u64,
    /// Blocked while the handler runs.
    pub sa_mask: SignalSet,
}

/// `stack_t` of `sigaltstack(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalStack {
    /// Lowest address.
    pub ss_sp: u64,
    /// `SS_*`.
    pub ss_flags: i32,
    /// Padding of C.
    pub hole: u32,
    /// Bytes.
    pub ss_size: u64,
}

/// `siginfo_t`: 128 bytes, of which the head is common and the rest depends on the code.
///
/// The fields of the union are reached through the constructors and accessors here.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Siginfo {
    /// The signal.
    pub si_signo: i32,
    /// An errno, nearly always 0.
    pub si_errno: i32,
    /// The origin: `SI_*`, `CLD_*`, `SEGV_*` and so on.
    pub si_code: i32,
    /// Padding of C: the union is aligned to 8.
    pub hole: u32,
    /// The union, as 64-bit words.
    pub fields: [u64; 14],
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Siginfo {
    /// Returns the information of a signal without further data.
    pub const fn new(signal: u32, code: i32) -> Siginfo {
        Siginfo { si_signo: signal as i32, si_errno: 0, si_code: code, hole: 0, fields: [0; 14] }
    }

    /// Returns the information of a signal sent by `kill(2)` and similar calls, with the sender's
    /// identity.
    pub const fn from_sender(signal: u32, code: i32, pid: u32, uid: u32) -> Siginfo {
        let mut info = Siginfo::new(signal, code);
        info.fields[0] = pair(pid, uid);
        info
    }

    /// Returns the information of a signal sent by `sigqueue(3)`, with the sender's identity and a
    /// value.
    pub const fn from_queue(signal: u32, code: i32, pid: u32, uid: u32, value: u64) -> Siginfo {
        let mut info = Siginfo::from_sender(signal, code, pid, uid);
        info.fields[1] = value;
        info
    }

    /// Returns the information of a POSIX timer's signal: the timer's identifier, its overrun
    /// count, its value.
    pub const fn from_timer(signal: u32, timer: i32, overrun: i32, value: u64) -> Siginfo {
        let mut info = Siginfo::new(signal, SI_TIMER);
        info.fields[0] = pair(timer as u32, overrun as u32);
        info.fields[1] = value;
        info
    }

    /// Returns the information about a child: `status` is an exit status or a signal, depending on
    /// `code` (`CLD_*`); times are in clock ticks.
    pub const fn from_child(
        code: i32,
        pid: u32,
        uid: u32,
        status: i32,
        utime: i64,
        stime: i64,
    ) -> Siginfo {
        let mut info = Siginfo::from_sender(SIGCHLD, code, pid, uid);
        info.fields[1] = pair(status as u32, 0);
        info.fields[2] = utime as u64;
        info.fields[3] = stime as u64;
        info
    }

    /// Returns the information of a fault at an address.
    pub const fn from_fault(signal: u32, code: i32, address: u64) -> Siginfo {
        let mut info = Siginfo::new(signal, code);
        info.fields[0] = address;
        info
    }

    /// Returns the information of a system call that a filter trapped: the address behind the
    /// instruction, the call's number, the architecture (`AUDIT_ARCH_*`).
    pub const fn from_call(code: i32, error: i32, address: u64, call: u32, arch: u32) -> Siginfo {
        let mut info = Siginfo::from_fault(SIGSYS, code, address);
        info.si_errno = error;
        info.fields[1] = pair(call, arch);
        info
    }

    /// Returns the information of a descriptor with `O_ASYNC`.
    pub const fn from_poll(signal: u32, code: i32, band: i64, fd: i32) -> Siginfo {
        let mut info = Siginfo::new(signal, code);
        info.fields[0] = band as u64;
        info.fields[1] = pair(fd as u32, 0);
        info
    }

    /// Returns the sender's or child's process ID (first word of the union).
    pub const fn pid(&self) -> u32 {
        self.fields[0] as u32
    }

    /// Returns the sender's or child's user ID.
    pub const fn uid(&self) -> u32 {
        (self.fields[0] >> 32) as u32
    }

    /// Returns `si_value` of a queued or timer signal.
    pub const fn value(&self) -> u64 {
        self.fields[1]
    }

    /// Returns `si_status` of a child signal.
    pub const fn status(&self) -> i32 {
        self.fields[1] as i32
    }
}

/// `struct sigevent`, 64 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sigevent {
    /// Passed to the handler.
    pub sigev_value: u64,
    /// The signal.
    pub sigev_signo: i32,
    /// `SIGEV_*`.
    pub sigev_notify: i32,
    /// The thread for `SIGEV_THREAD_ID`.
    pub sigev_notify_thread_id: i32,
    /// Rest of the union.
    pub rest: [u32; 11],
}

/// `struct sigcontext`: the registers a handler finds and may change.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in sigcontext.h")]
pub struct Sigcontext {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub eflags: u64,
    pub cs: u16,
    pub gs: u16,
    pub fs: u16,
    pub ss: u16,
    pub err: u64,
    pub trapno: u64,
    pub oldmask: u64,
    pub cr2: u64,
    pub fpstate: u64,
    pub reserved: [u64; 8],
}

/// `struct ucontext` as the kernel puts it on the stack.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in ucontext.h")]
pub struct Ucontext {
    pub uc_flags: u64,
    pub uc_link: u64,
    pub uc_stack: SignalStack,
    pub uc_mcontext: Sigcontext,
    pub uc_sigmask: SignalSet,
}

/// `uc_flags`: the frame has an XSAVE area behind `fpstate`.
pub const UC_FP_XSTATE: u64 = 1;
/// `uc_flags`: `ss` is saved, and must be restored unchanged.
pub const UC_SIGCONTEXT_SS: u64 = 2;
/// `uc_flags`: `ss` is restored strictly.
pub const UC_STRICT_RESTORE_SS: u64 = 4;

/// `struct signalfd_siginfo`, 128 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in signalfd(2)")]
pub struct SignalfdSiginfo {
    pub ssi_signo: u32,
    pub ssi_errno: i32,
    pub ssi_code: i32,
    pub ssi_pid: u32,
    pub ssi_uid: u32,
    pub ssi_fd: i32,
    pub ssi_tid: u32,
    pub ssi_band: u32,
    pub ssi_overrun: u32,
    pub ssi_trapno: u32,
    pub ssi_status: i32,
    pub ssi_int: i32,
    pub ssi_ptr: u64,
    pub ssi_utime: u64,
    pub ssi_stime: u64,
    pub ssi_addr: u64,
    pub ssi_addr_lsb: u16,
    pub hole: u16,
    pub ssi_syscall: i32,
    pub ssi_call_addr: u64,
    pub ssi_arch: u32,
    pub reserved: [u32; 7],
}
