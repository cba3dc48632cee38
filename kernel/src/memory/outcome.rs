//! What a page is touched for, and what comes of it.

/// The kind of access that the program tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Fetching an instruction.
    Execute,
}

/// The result of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultResult {
    /// Try again: the page is there.
    Done,
    /// Nothing is mapped there: SIGSEGV, `SEGV_MAPERR`.
    NotMapped,
    /// The mapping does not allow the access: SIGSEGV, `SEGV_ACCERR`.
    NotAllowed,
    /// The file ends before the page, or cannot be read: SIGBUS, `BUS_ADRERR`.
    NoContent,
    /// Memory is exhausted: the faulting process is killed.
    OutOfMemory,
    /// A limit of its control group does not allow the page, and no process can be killed for that
    /// but perhaps this one, which has been told to end.
    Limited,
    /// A signal came while the thread waited for who provides the page.
    Interrupted,
}

/// On whose behalf a page is touched. It matters where a program provides the page
/// ([`userfault`](super::userfault)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An instruction of the program.
    Program,
    /// The kernel's work for the current thread.
    Kernel,
    /// A debugger, which is not kept waiting.
    Debugger,
}
