//! `membarrier(2)`: a barrier on every processor that runs the process, by interrupting it.
//!
//! The interrupt and the return from it order all accesses and serialise the processor, so one
//! implementation serves all commands. Those on restartable sequences also make the interrupted
//! threads end theirs.

use hayate_abi::{Errno, Result};
use machine::cpu;
use machine::smp;

use crate::memory;
use crate::process;
use crate::process::sequences;

const QUERY: i32 = 0;
const GLOBAL: i32 = 1;
const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 6;
const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

/// Flag of `PRIVATE_EXPEDITED_RSEQ`: only this processor.
const FLAG_CPU: u32 = 1;

/// `membarrier(2)`.
pub fn membarrier(command: i32, flags: u32, cpu: i32) -> Result<i32> {
    let known = if command == PRIVATE_EXPEDITED_RSEQ { FLAG_CPU } else { 0 };
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let space = memory::current();
    match command {
        QUERY => Ok(GLOBAL
            | GLOBAL_EXPEDITED
            | REGISTER_GLOBAL_EXPEDITED
            | PRIVATE_EXPEDITED
            | REGISTER_PRIVATE_EXPEDITED
            | PRIVATE_EXPEDITED_SYNC_CORE
            | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
            | PRIVATE_EXPEDITED_RSEQ
            | REGISTER_PRIVATE_EXPEDITED_RSEQ),
        GLOBAL | GLOBAL_EXPEDITED => {
            smp::synchronise(cpu::online_mask());
            Ok(0)
        }
        REGISTER_GLOBAL_EXPEDITED => Ok(0),
        REGISTER_PRIVATE_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
        | REGISTER_PRIVATE_EXPEDITED_RSEQ => {
            space.register_barrier(command as u32 >> 1);
            Ok(0)
        }
        PRIVATE_EXPEDITED | PRIVATE_EXPEDITED_SYNC_CORE => {
            if !space.may_use_barrier(command as u32) {
                return Err(Errno::EPERM);
            }
            smp::synchronise(space.active());
            Ok(0)
        }
        PRIVATE_EXPEDITED_RSEQ => {
            if !space.may_use_barrier(command as u32) {
                return Err(Errno::EPERM);
            }
            // A negative number means all, one that is not there none (`membarrier`, 6.1).
            let asked = if flags & FLAG_CPU == 0 { -1 } else { cpu };
            let processors = match u32::try_from(asked) {
                Ok(cpu) => 1_u64.checked_shl(cpu).unwrap_or(0),
                Err(_) => u64::MAX,
            };
            sequences::end_others(&process::current(), processors & space.active());
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
