//! The Hayate kernel: boot from top to bottom, with the time of each step logged.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;
extern crate hayate_machine as machine;

pub mod clock;
pub mod credentials;
pub mod drivers;
mod first;
pub mod fs;
pub mod hash;
pub mod in_place;
pub mod ipc;
pub mod memory;
pub mod page_cache;
pub mod process;
pub mod program;
pub mod random;
pub mod reclaim;
pub mod recycle;
pub mod schedule;
pub mod supervisor;
pub mod syscall;
#[cfg(feature = "tests")]
mod tests;
pub mod tty;
pub mod vfs;

use hayate_machine::trap::Handlers;
use hayate_machine::{boot, cpu, frames, info, smp, time, trap, vdso};

hayate_machine::entry!(main);

/// Logs how long a step of the boot took.
fn timed<T>(stage: &str, step: impl FnOnce() -> T) -> T {
    let before = time::monotonic_ns();
    let result = step();
    info!("boot: {stage} {}", time::monotonic_ns() - before);
    result
}

/// The first code on the first CPU: interrupts off, no heap yet.
fn main() -> ! {
    info!("Hayate {}", env!("CARGO_PKG_VERSION"));
    info!("command line: {}", boot::info().command_line);
    timed("memory", boot::prepare_memory);
    trap::register(handlers());
    recycle::init();
    supervisor::gate::init();
    schedule::init();
    timed("cpus", || smp::start_others(other_main));
    info!("{} CPU(s), {} MiB", cpu::count(), frames::counts().total >> 8);
    if schedule::start_kernel("main", threaded).is_err() {
        panic!("no memory for the first kernel thread");
    }
    schedule::run_idle()
}

/// The kernel's event handlers. If the starts of programs are to be measured, other functions take
/// their place, so that the usual ones need no check.
fn handlers() -> Handlers {
    let handlers = Handlers {
        syscall: syscall::dispatcher(),
        page_fault: process::fault::page_fault,
        exception: process::fault::exception,
        timer: schedule::tick,
        irq: |_| (),
        attention: |regs| {
            schedule::attend();
            process::attend(regs);
        },
    };
    if !process::starts::is_wanted() {
        return handlers;
    }
    Handlers {
        page_fault: process::starts::page_fault,
        exception: process::starts::exception,
        attention: |regs| {
            process::starts::attend(|| {
                schedule::attend();
                process::attend(regs);
            });
        },
        ..handlers
    }
}

/// The first code on every other CPU.
fn other_main() -> ! {
    schedule::init();
    schedule::run_idle()
}

/// The rest of the boot, in an execution that may sleep.
fn threaded() {
    timed("files", || {
        vfs::init();
        fs::init();
        tty::devpts::register();
        fs::proc::register();
        fs::sysfs::register();
    });
    timed("devices", || {
        drivers::init();
        in_place::store::init();
        let made = tty::init().and_then(|()| fs::devfs::add_devices());
        if let Err(error) = made {
            panic!("the first device files cannot be made: {error:?}");
        }
    });
    #[cfg(feature = "tests")]
    if tests::is_wanted() {
        tests::run();
    }
    if let Err(error) = timed("root", fs::root::prepare) {
        panic!("{error}");
    }
    process::init();
    recycle::register_pools();
    let place = if memory::randomizes() { random::word() } else { 0 };
    if vdso::place(place).is_err() {
        panic!("no memory for the pages that programs see");
    }
    ipc::unix::socket::register_identity(|| process::current().identity());
    if let Err(error) = first::start() {
        panic!("{error}");
    }
}
