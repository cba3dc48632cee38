//! COM1, the output of the log: polled 16550, silent if there is none.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::port::Port;

const COM1: u16 = 0x3f8;

static PRESENT: AtomicBool = AtomicBool::new(false);

fn register(offset: u16) -> Port<u8> {
    Port::new(COM1 + offset)
}

/// Looks for the UART and sets it to 115200 8N1.
pub(crate) fn init() {
    // SAFETY: the standard registers of COM1; an absent UART reads 0xff and ignores writes.
    unsafe {
        register(7).write(0x5a);
        if register(7).read() != 0x5a {
            return;
        }
        register(1).write(0); // no interrupts
        register(3).write(0x80); // divisor
        register(0).write(1);
        register(1).write(0);
        register(3).write(3); // 8N1
        register(2).write(0xc7); // FIFOs on, cleared
        register(4).write(0x0b); // DTR, RTS, OUT2
    }
    PRESENT.store(true, Ordering::Relaxed);
}

fn put(byte: u8) {
    // SAFETY: reading the line status and writing the transmit register of an existing UART.
    unsafe {
        let mut patience = 1_000_000;
        while register(5).read() & 0x20 == 0 && patience > 0 {
            patience -= 1;
            core::hint::spin_loop();
        }
        register(0).write(byte);
    }
}

struct Out;

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(put);
        Ok(())
    }
}

/// Writes text; the caller serialises lines (see [`crate::log`]).
pub(crate) fn print(text: fmt::Arguments) {
    if PRESENT.load(Ordering::Relaxed) {
        let _ = Out.write_fmt(text);
    }
}

/// Whether there is a UART.
pub fn present() -> bool {
    PRESENT.load(Ordering::Relaxed)
}

/// Writes bytes unchanged: the console of last resort.
pub fn write(bytes: &[u8]) {
    if present() {
        bytes.iter().copied().for_each(put);
    }
}

/// Returns a byte that has been received, if any.
pub fn read() -> Option<u8> {
    if !present() {
        return None;
    }
    // SAFETY: line status, then the receive register of an existing UART.
    unsafe { (register(5).read() & 1 != 0).then(|| register(0).read()) }
}

/// Lets the UART interrupt (ISA line 4) when a byte arrives.
pub fn enable_receive_interrupt() {
    if present() {
        // SAFETY: the interrupt enable register of an existing UART.
        unsafe { register(1).write(1) };
    }
}
