//! `membarrier(2)`: a barrier on every processor that runs the process, by interrupting it.
//!
//! The interrupt and the return from it order all accesses and serialise the processor, so one
//! implementation serves all commands except those on restartable sequences.

use hayate_abi::{Errno, Result};
use machine::cpu;
use machine::smp;

use crate::memory;

const QUERY: i32 = 0;
const GLOBAL: i32 = 1;
const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: i32 = 1 << 6;

/// `membarrier(2)`.
pub fn membarrier(command: i32, flags: u32, cpu: i32) -> Result<i32> {
    // A processor can be given only with the command on restartable sequences.
    let _ = cpu;
    if flags != 0 {
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
            | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE),
        GLOBAL | GLOBAL_EXPEDITED => {
            smp::synchronise(cpu::online_mask());
            Ok(0)
        }
        REGISTER_GLOBAL_EXPEDITED => Ok(0),
        REGISTER_PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE => {
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
        _ => Err(Errno::EINVAL),
    }
}
