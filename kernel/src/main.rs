//! The Hayate kernel: everything above the machine layer, without a line of unsafe code.
//!
//! Its three research systems are in a folder each: [`recycle`] (Tender), [`supervisor`] (DMSM) and
//! [`in_place`] (OFF2F). Around them, highest first:
//!
//! | room | contents |
//! |---|---|
//! | [`syscall`] | the table of system calls, and a thin file for each family |
//! | [`fs::proc`], [`fs::sysfs`] | the kernel's knowledge, as files |
//! | [`process`] | processes, threads, fork, exec, exit, signals, futexes, timers |
//! | [`program`] | executables, and how they are loaded into a space |
//! | [`memory`] | spaces, regions, page faults |
//! | [`tty`], [`ipc`], [`fs`] | terminals; pipes, Unix sockets, events; file systems |
//! | [`net`] | IPv4 and IPv6: TCP, UDP, ICMP; the packets between sockets |
//! | [`vfs`] | paths, mounts, inodes, open files, descriptors, locks |
//! | [`page_cache`] | contents of files as pages in memory |
//! | [`drivers`] | disks, console, entropy, network, persistent memory, balloon |
//! | [`kernel_log`] | the log, as programs read and write it |
//! | [`schedule`] | run queues, sleep and wake, timers |
//! | [`reclaim`] | the order of giving up memory when frames run out; growth that can fail |
//! | [`machine`] | the machine layer: boot, traps, page tables, frames, user memory |
//!
//! # Nine paths
//!
//! Each of these leads through the files on its way, in order, on one screen:
//! [a page fault](tour::page_fault), [a system call](tour::system_call), [fork](tour::fork),
//! [exec](tour::exec), [a read](tour::read), [a packet](tour::packet),
//! [an interrupt](tour::interrupt), [a start from what was kept](tour::kept_start),
//! [a switch of mode](tour::mode_switch).
//!
//! # This file
//!
//! The boot, from top to bottom, with the time of each step logged.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;
extern crate hayate_machine as machine;

pub mod clock;
pub mod confinement;
mod credentials;
pub mod drivers;
mod first;
pub mod fs;
pub mod hash;
pub mod in_place;
pub mod ipc;
pub mod kernel_log;
pub mod memory;
pub mod namespace;
pub mod net;
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
#[cfg(doc)]
pub mod tour;
pub mod tty;
pub mod user_namespace;
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
    memory::all_spaces::init();
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
        traced_call: syscall::traced::dispatch,
        traced_return: || {
            if let Some(thread) = process::try_current() {
                process::tracing::stop::load_debug_registers(&thread);
            }
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
    kernel_log::init();
    timed("files", || {
        vfs::init();
        ipc::init();
        fs::init();
        tty::devpts::register();
        fs::proc::register();
        fs::cgroup::register();
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
    if let Err(error) = timed("network", net::init) {
        panic!("the network: {error:?}");
    }
    #[cfg(feature = "tests")]
    if tests::is_wanted() {
        tests::run();
    }
    if let Err(error) = timed("root", fs::root::prepare) {
        panic!("{error}");
    }
    process::init();
    recycle::spaces::init();
    recycle::empty_spaces::init();
    recycle::heirs::init();
    recycle::regions::init();
    recycle::stacks::init();
    recycle::programs::init();
    // Templates that were saved have addresses of what it shows.
    let place = process::templates::shelf::number_of_object()
        .unwrap_or_else(|| if memory::places::are_random() { random::word() } else { 0 });
    if vdso::place(place).is_err() {
        panic!("no memory for the pages that programs see");
    }
    vfs::caller::register(vfs::caller::Caller {
        credentials: || process::current().credentials(),
        identity: || process::current().identity(),
        process: || process::try_current().map_or(0, |thread| thread.process().id()),
        shown_process: process::visible::shown,
        limit: |resource| process::current().process().limit(resource),
        read_from_device: |bytes| {
            if let Some(thread) = process::try_current() {
                thread.moved.read_from_device(bytes);
            }
        },
        network: || {
            process::try_current().map_or_else(net::config::first, |thread| thread.network())
        },
        is_ending: || process::try_current().is_some_and(|thread| thread.process().is_exiting()),
        thread: || process::try_current().map_or(0, |thread| thread.own_id()),
        must_end: || {
            process::try_current().is_some_and(|thread| {
                schedule::current().is_at_end() || process::exit::is_told(&thread).is_some()
            })
        },
    });
    vfs::mount_tree::register_callers(|| match process::try_current() {
        Some(thread) => thread.mounts(),
        None => namespace::Handle::First(&vfs::mount::FIRST),
    });
    ipc::mqueue::tree::register_callers(|| {
        let ipc = process::current().ipc();
        (ipc.mqueue.clone(), ipc.owner.clone())
    });
    syscall::init();
    time::settle();
    if let Err(error) = first::start() {
        panic!("{error}");
    }
}
