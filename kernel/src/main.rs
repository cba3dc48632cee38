//! The Hayate kernel: boot from top to bottom, with the time of each step logged.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;
extern crate hayate_machine as machine;

pub mod clock;
pub mod credentials;
pub mod device;
pub mod file;
mod first;
pub mod growth;
pub mod ktest;
pub mod memory;
pub mod net;
pub mod nvm;
pub mod process;
mod procfs;
pub mod program;
pub mod random;
pub mod resource;
pub mod schedule;
pub mod syscall;

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
    resource::init();
    syscall::supervisor::init();
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
        file::init();
        file::tty::devpts::register();
        procfs::register();
        procfs::sysfs::register();
    });
    timed("devices", || {
        device::init();
        nvm::init();
        let made = file::tty::init().and_then(|()| file::init_devices());
        if let Err(error) = made {
            panic!("the first device files cannot be made: {error:?}");
        }
    });
    if ktest::is_wanted() {
        ktest::run();
    }
    if let Err(error) = timed("root", file::root::prepare) {
        panic!("{error}");
    }
    process::init();
    memory::keep::init();
    memory::empty::init();
    memory::regions::init();
    schedule::work_area::init();
    program::record::init();
    let place = if memory::randomizes() { random::word() } else { 0 };
    if vdso::place(place).is_err() {
        panic!("no memory for the pages that programs see");
    }
    net::unix::socket::register_identity(|| process::current().identity());
    if let Err(error) = first::start() {
        panic!("{error}");
    }
}
