//! Panic: prints message and stack, stops the other CPUs, and ends QEMU with status 255.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{cpu, ipi, log, power};

static PANICKING: AtomicBool = AtomicBool::new(false);

/// The value for the exit device.
const EXIT: u8 = 0x7f;

#[cfg_attr(not(miri), panic_handler)]
#[cfg_attr(miri, expect(dead_code, reason = "the interpreter panics by itself"))]
fn panic(info: &PanicInfo) -> ! {
    if PANICKING.swap(true, Ordering::SeqCst) {
        // This is a second panic, here or on another CPU: the first one is reported.
        cpu::stop();
    }
    ipi::stop_others();
    log::write_kept_at_the_end();
    match info.location() {
        Some(at) => {
            log::raw(format_args!("panic: {} ({}:{})\n", info.message(), at.file(), at.line()))
        }
        None => log::raw(format_args!("panic: {}\n", info.message())),
    }
    let frame: u64;
    // SAFETY: copies a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack)) };
    backtrace(frame);
    power::exit_device(EXIT);
    cpu::stop()
}

/// Prints the return addresses along the chain of frame pointers that starts at `frame`.
pub(crate) fn backtrace(mut frame: u64) {
    // An exception with an interrupt stack leaves it once, for the stack that was in use.
    let mut may_fall = true;
    for number in 0..64 {
        // Frames lie in kernel memory at rising addresses; anything else is the end (or damage).
        if frame < 0xffff_8000_0000_0000 || frame & 7 != 0 || frame > u64::MAX - 16 {
            break;
        }
        // SAFETY: this is a frame pointer of kernel code in kernel memory; at worst a wrong pointer
        // causes another fault, whose panic is cut short above.
        let (next, back) = unsafe { (*(frame as *const u64), *((frame + 8) as *const u64)) };
        if back == 0 {
            break;
        }
        log::raw(format_args!("  #{number} {back:#018x}\n"));
        if next <= frame && !core::mem::take(&mut may_fall) {
            break;
        }
        frame = next;
    }
}
