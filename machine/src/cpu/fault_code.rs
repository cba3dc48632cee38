//! The processor's description of a page fault.

bitflags::bitflags! {
    /// The error code of a page fault (Intel SDM vol. 3, 4.7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FaultCode: u64 {
        /// The page is mapped: a protection violation.
        const PRESENT = 1;
        /// A write.
        const WRITE = 2;
        /// From user mode.
        const USER = 4;
        /// A reserved bit was set in a table entry.
        const RESERVED = 8;
        /// An instruction fetch.
        const FETCH = 16;
    }
}
