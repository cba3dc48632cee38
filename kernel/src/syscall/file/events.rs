//! Waiting for events: `poll`, `select`, `epoll`, and files that only report events.

use alloc::vec::Vec;

use hayate_abi::file::{EpollEvent, Pollfd};
use hayate_abi::process::RLIMIT_NOFILE;
use hayate_abi::time::{Timespec, Timeval};
use hayate_abi::{Errno, Result};
use hayate_machine::time::monotonic_ns;
use hayate_machine::user::{self, UserPtr};

use super::{View, credentials, files, install, open_file, path};
use crate::credentials::{Capability, access};
use crate::ipc::epoll;
use crate::ipc::epoll::Epoll;
use crate::ipc::eventfd;
use crate::ipc::inotify;
use crate::ipc::inotify::Inotify;
use crate::ipc::timerfd;
use crate::ipc::timerfd::{Setting, TimerFd};
use crate::process;
use crate::process::signal::signalfd;
use crate::process::signal::signalfd::SignalFd;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::open_file::flags::{O_CLOEXEC, O_NONBLOCK};
use crate::vfs::path::{WalkFlags, permitted};
use crate::vfs::poll::Events;
use crate::vfs::poll_wait;
use crate::vfs::poll_wait::PolledFile;
use crate::vfs::watch::Mask;

/// The size of a signal set.
const SET_SIZE: usize = 8;

/// The deadline of a wait of `nanos` nanoseconds; 0: do not wait.
fn deadline_after(nanos: u64) -> u64 {
    if nanos == 0 { 0 } else { monotonic_ns().saturating_add(nanos) }
}

/// The deadline of a timeout in milliseconds; `None` if it is negative.
fn milliseconds(timeout: i32) -> Option<u64> {
    u64::try_from(timeout).ok().map(|timeout| deadline_after(timeout * 1_000_000))
}

/// The deadline of an optional `struct timespec`.
fn timespec(address: usize) -> Result<Option<u64>> {
    if address == 0 {
        return Ok(None);
    }
    let nanos = UserPtr::<Timespec>::new(address).read()?.to_nanos()?;
    Ok(Some(deadline_after(nanos)))
}

/// Writes the time left of a timeout, as Linux does for `ppoll` and `pselect6`. A timeout that
/// cannot be written does not make the call fail.
fn give_rest(address: usize, deadline: Option<u64>) {
    if let Some(deadline) = deadline
        && address != 0
    {
        let left = deadline.saturating_sub(monotonic_ns());
        let _ = UserPtr::new(address).write(&Timespec::from_nanos(left));
    }
}

/// Runs `wait` under another signal mask, if one is given.
pub fn with_mask<T>(mask: usize, size: usize, wait: impl FnOnce() -> Result<T>) -> Result<T> {
    if mask == 0 {
        return wait();
    }
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let set = UserPtr::<u64>::new(mask).read()?;
    let thread = process::current();
    thread.replace_mask(set);
    let outcome = wait();
    process::current().restore_mask(&outcome);
    outcome
}

fn poll_until(address: usize, count: u32, deadline: Option<u64>) -> Result<usize> {
    let limit = process::current().process().limit(RLIMIT_NOFILE);
    if u64::from(count) > limit {
        return Err(Errno::EINVAL);
    }
    let count = count as usize;
    let (mut fds, mut watched) = (Vec::new(), Vec::new());
    growth::relieved(|| fds.make_room_exact(count))?;
    growth::relieved(|| watched.make_room_exact(count))?;
    fds.resize(count, Pollfd::default());
    UserPtr::new(address).read_slice(&mut fds)?;
    let table = files();
    let mut invalid = 0;
    for fd in &fds {
        let wanted = Events::from_bits_retain(u32::from(fd.events as u16));
        let (file, found) = match fd.fd {
            ..0 => (None, Events::empty()),
            number => match table.get_open(number) {
                Ok(file) => (Some(file), Events::empty()),
                Err(_) => {
                    invalid += 1;
                    (None, Events::NVAL)
                }
            },
        };
        watched.push(PolledFile { file, wanted, found });
    }
    // An invalid descriptor is a result, so the call does not wait.
    poll_wait::wait(&mut watched, if invalid != 0 { Some(0) } else { deadline })?;
    let mut ready = 0;
    for (index, one) in watched.iter().enumerate() {
        let found = one.found.bits() as i16;
        ready += usize::from(found != 0);
        // `revents` is the last field of the structure's eight bytes.
        UserPtr::<Pollfd>::new(address).at(index).offset::<i16>(6).write(&found)?;
    }
    Ok(ready)
}

/// `poll(2)`
pub fn poll(fds: usize, count: u32, timeout: i32) -> Result<usize> {
    match milliseconds(timeout) {
        Some(deadline) => poll_again(fds, count, deadline),
        None => poll_until(fds, count, None),
    }
}

/// `poll(2)` until `deadline`. After a signal that ran no handler (a stop, for example) it
/// continues until the same deadline (`do_restart_poll`).
pub fn poll_again(fds: usize, count: u32, deadline: u64) -> Result<usize> {
    poll_until(fds, count, Some(deadline)).map_err(|error| match error {
        Errno::ERESTARTNOHAND => {
            process::current().restart_with(process::Restart::Poll { fds, count, deadline })
        }
        error => error,
    })
}

/// `ppoll(2)`
pub fn ppoll(fds: usize, count: u32, timeout: usize, mask: usize, size: usize) -> Result<usize> {
    let deadline = timespec(timeout)?;
    let outcome = with_mask(mask, size, || poll_until(fds, count, deadline));
    give_rest(timeout, deadline);
    outcome
}

/// The three sets of `select(2)` as words.
struct Sets {
    count: usize,
    /// Read, write, except.
    words: [Vec<u64>; 3],
    addresses: [usize; 3],
}

impl Sets {
    fn read(count: i32, addresses: [usize; 3]) -> Result<Sets> {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        // Bits beyond the table belong to no descriptor and are left alone. The table counts as
        // having 256 numbers at least, as it has in Linux once a shell has run.
        let count = count.min(files().size().max(256));
        let mut words = [const { Vec::new() }; 3];
        for (set, &address) in words.iter_mut().zip(&addresses) {
            let length = count.div_ceil(64);
            growth::relieved(|| set.make_room_exact(length))?;
            set.resize(length, 0u64);
            if address != 0 {
                // A set is as long as its last bit needs, in longs.
                UserPtr::new(address).read_slice(set)?;
            }
        }
        Ok(Sets { count, words, addresses })
    }

    fn has(&self, set: usize, fd: usize) -> bool {
        self.words
            .get(set)
            .and_then(|words| words.get(fd / 64))
            .is_some_and(|word| word >> (fd % 64) & 1 != 0)
    }

    fn mark(&mut self, set: usize, fd: usize) {
        if let Some(word) = self.words.get_mut(set).and_then(|words| words.get_mut(fd / 64)) {
            *word |= 1 << (fd % 64);
        }
    }

    fn clear(&mut self) {
        for set in &mut self.words {
            set.fill(0);
        }
    }

    fn write(&self) -> Result<()> {
        for (set, &address) in self.words.iter().zip(&self.addresses) {
            if address != 0 {
                UserPtr::new(address).write_slice(set)?;
            }
        }
        Ok(())
    }
}

/// The events that each set of `select` waits for (`POLLIN_SET` and so on, fs/select.c).
fn select_events(set: usize) -> Events {
    match set {
        0 => Events::READABLE | Events::RDBAND | Events::HUP | Events::ERR,
        1 => Events::WRITABLE | Events::WRBAND | Events::ERR,
        _ => Events::PRI,
    }
}

fn select_until(count: i32, addresses: [usize; 3], deadline: Option<u64>) -> Result<usize> {
    let mut sets = Sets::read(count, addresses)?;
    let table = files();
    let (mut watched, mut numbers) = (Vec::new(), Vec::new());
    for fd in 0..sets.count {
        let mut wanted = Events::empty();
        for set in 0..3 {
            if sets.has(set, fd) {
                wanted |= select_events(set);
            }
        }
        if !wanted.is_empty() {
            let file = table.get_open(fd as i32)?;
            growth::relieved(|| watched.make_room(1))?;
            growth::relieved(|| numbers.make_room(1))?;
            watched.push(PolledFile { file: Some(file), wanted, found: Events::empty() });
            numbers.push((fd, [sets.has(0, fd), sets.has(1, fd), sets.has(2, fd)]));
        }
    }
    // Errors and hang-ups count only where a set asks for them: wait again if nothing else came.
    loop {
        poll_wait::wait(&mut watched, deadline)?;
        let asked = |one: &PolledFile| !(one.found & one.wanted).is_empty();
        let past = deadline.is_some_and(|deadline| deadline <= monotonic_ns());
        if watched.iter().any(asked) || past || watched.iter().all(|one| one.found.is_empty()) {
            break;
        }
        // Do not wait any longer for a file that hung up unasked.
        for one in &mut watched {
            if !asked(one) && !one.found.is_empty() {
                one.file = None;
                one.found = Events::empty();
            }
        }
    }
    sets.clear();
    let mut total = 0;
    for (one, (fd, asked)) in watched.iter().zip(numbers) {
        for (set, asked) in asked.into_iter().enumerate() {
            if asked && one.found.intersects(select_events(set)) {
                sets.mark(set, fd);
                total += 1;
            }
        }
    }
    sets.write()?;
    Ok(total)
}

/// `select(2)`
pub fn select(
    count: i32,
    read: usize,
    write: usize,
    except: usize,
    timeout: usize,
) -> Result<usize> {
    let deadline = if timeout == 0 {
        None
    } else {
        // Microseconds beyond a second are carried over, as Linux does for this call.
        let time = UserPtr::<Timeval>::new(timeout).read()?;
        let seconds = time.tv_sec.saturating_add(time.tv_usec / 1_000_000);
        let rest = Timeval { tv_sec: seconds, tv_usec: time.tv_usec % 1_000_000 };
        Some(deadline_after(rest.to_nanos()?))
    };
    let outcome = select_until(count, [read, write, except], deadline);
    if let Some(deadline) = deadline {
        let left = deadline.saturating_sub(monotonic_ns());
        // As for `ppoll`: the result stands whether this can be written or not.
        let _ = UserPtr::new(timeout).write(&Timeval::from_nanos(left));
    }
    outcome
}

/// `pselect6(2)`
pub fn pselect6(
    count: i32,
    read: usize,
    write: usize,
    except: usize,
    timeout: usize,
    mask: usize,
) -> Result<usize> {
    let deadline = timespec(timeout)?;
    let (set, size) = if mask == 0 {
        (0, SET_SIZE)
    } else {
        let [set, size] = UserPtr::<[u64; 2]>::new(mask).read()?;
        (set as usize, size as usize)
    };
    let outcome = with_mask(set, size, || select_until(count, [read, write, except], deadline));
    give_rest(timeout, deadline);
    outcome
}

/// `epoll_create(2)`
pub fn epoll_create(size: i32) -> Result<i32> {
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
    epoll_create1(0)
}

/// `epoll_create1(2)`
pub fn epoll_create1(flags: u32) -> Result<i32> {
    if flags & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    install(epoll::open(credentials().uid)?, flags & O_CLOEXEC != 0)
}

/// `epoll_ctl(2)`
pub fn epoll_ctl(set: i32, operation: i32, fd: i32, event: usize) -> Result<()> {
    const ADD: i32 = 1;
    const DELETE: i32 = 2;
    const MODIFY: i32 = 3;
    let wanted = match operation {
        DELETE => EpollEvent::default(),
        _ => UserPtr::<EpollEvent>::new(event).read()?,
    };
    let (set_file, file) = (open_file(set)?, open_file(fd)?);
    if !file.traits().contains(crate::vfs::open_file::Traits::POLLABLE) {
        return Err(Errno::EPERM);
    }
    if alloc::sync::Arc::ptr_eq(&set_file, &file) {
        return Err(Errno::EINVAL);
    }
    let set = Epoll::of(&set_file)?;
    match operation {
        ADD => set.add(&file, fd, wanted.events, wanted.data),
        DELETE => set.remove(&file, fd),
        MODIFY => set.modify(&file, fd, wanted.events, wanted.data),
        _ => Err(Errno::EINVAL),
    }
}

fn epoll_until(set: i32, events: usize, count: i32, deadline: Option<u64>) -> Result<usize> {
    let most = usize::try_from(count).unwrap_or(0);
    if most == 0 || most > i32::MAX as usize / size_of::<EpollEvent>() {
        return Err(Errno::EINVAL);
    }
    if !user::in_user_half(events, most * size_of::<EpollEvent>()) {
        return Err(Errno::EFAULT);
    }
    let file = open_file(set)?;
    let found = Epoll::of(&file)?.wait(most, deadline)?;
    for (index, &(events_found, data)) in found.iter().enumerate() {
        let event = EpollEvent { events: events_found, data };
        if let Err(error) = UserPtr::<EpollEvent>::new(events).at(index).write(&event) {
            return if index == 0 { Err(error) } else { Ok(index) };
        }
    }
    Ok(found.len())
}

/// `epoll_wait(2)`
pub fn epoll_wait(set: i32, events: usize, count: i32, timeout: i32) -> Result<usize> {
    epoll_until(set, events, count, milliseconds(timeout))
}

/// `epoll_pwait(2)`
pub fn epoll_pwait(
    set: i32,
    events: usize,
    count: i32,
    timeout: i32,
    mask: usize,
    size: usize,
) -> Result<usize> {
    let deadline = milliseconds(timeout);
    with_mask(mask, size, || epoll_until(set, events, count, deadline))
}

/// `epoll_pwait2(2)`
pub fn epoll_pwait2(
    set: i32,
    events: usize,
    count: i32,
    timeout: usize,
    mask: usize,
    size: usize,
) -> Result<usize> {
    let deadline = timespec(timeout)?;
    with_mask(mask, size, || epoll_until(set, events, count, deadline))
}

/// `eventfd(2)` in its first form, without flags.
pub fn eventfd(initial: u32) -> Result<i32> {
    eventfd2(initial, 0)
}

/// `eventfd2(2)`
pub fn eventfd2(initial: u32, flags: u32) -> Result<i32> {
    const EFD_SEMAPHORE: u32 = 1;
    if flags & !(EFD_SEMAPHORE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    install(eventfd::open(initial, flags)?, flags & O_CLOEXEC != 0)
}

/// `timerfd_create(2)`
pub fn timerfd_create(clock: i32, flags: u32) -> Result<i32> {
    const CLOCK_REALTIME: i32 = 0;
    const CLOCK_MONOTONIC: i32 = 1;
    const CLOCK_BOOTTIME: i32 = 7;
    const CLOCK_REALTIME_ALARM: i32 = 8;
    const CLOCK_BOOTTIME_ALARM: i32 = 9;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let realtime = match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_ALARM => true,
        CLOCK_MONOTONIC | CLOCK_BOOTTIME | CLOCK_BOOTTIME_ALARM => false,
        _ => return Err(Errno::EINVAL),
    };
    // The machine never sleeps, so a clock that would wake it is like any other, but needs the
    // capability.
    if matches!(clock, CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM) {
        credentials().require(Capability::WakeAlarm)?;
    }
    install(timerfd::open(clock, realtime, flags)?, flags & O_CLOEXEC != 0)
}

/// Runs `work` on the timer of a descriptor.
fn with_timer<T>(fd: i32, work: impl FnOnce(&TimerFd) -> T) -> Result<T> {
    let file = open_file(fd)?;
    file.ops_as::<TimerFd>().map(work).ok_or(Errno::EINVAL)
}

fn write_setting(address: usize, setting: Setting) -> Result<()> {
    let pointer = UserPtr::<Timespec>::new(address);
    pointer.write(&Timespec::from_nanos(setting.interval))?;
    pointer.at(1).write(&Timespec::from_nanos(setting.value))
}

/// `timerfd_settime(2)`
pub fn timerfd_settime(fd: i32, flags: u32, new: usize, old: usize) -> Result<()> {
    const ABSOLUTE: u32 = 1;
    const CANCEL_ON_SET: u32 = 2;
    if flags & !(ABSOLUTE | CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let pointer = UserPtr::<Timespec>::new(new);
    let interval = pointer.read()?.to_nanos()?;
    let value = pointer.at(1).read()?.to_nanos()?;
    let setting = Setting { value, interval };
    let (before, cancelled) = with_timer(fd, |timer| timer.set(setting, flags))??;
    if cancelled {
        return Err(Errno::ECANCELED);
    }
    if old == 0 { Ok(()) } else { write_setting(old, before) }
}

/// `timerfd_gettime(2)`
pub fn timerfd_gettime(fd: i32, current: usize) -> Result<()> {
    write_setting(current, with_timer(fd, TimerFd::get)?)
}

/// `inotify_init(2)`
pub fn inotify_init() -> Result<i32> {
    inotify_init1(0)
}

/// `inotify_init1(2)`
pub fn inotify_init1(flags: u32) -> Result<i32> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    install(inotify::open(flags, credentials().uid)?, flags & O_CLOEXEC != 0)
}

/// `inotify_add_watch(2)`
pub fn inotify_add_watch(fd: i32, path_address: usize, mask: u32) -> Result<i32> {
    let mask = Mask::from_bits(mask).filter(|mask| !mask.is_empty()).ok_or(Errno::EINVAL)?;
    let file = open_file(fd)?;
    if mask.contains(Mask::MASK_ADD | Mask::MASK_CREATE) {
        return Err(Errno::EINVAL);
    }
    let instance = Inotify::of(&file)?;
    let mut walk = WalkFlags::empty();
    walk.set(WalkFlags::NOFOLLOW, mask.contains(Mask::DONT_FOLLOW));
    walk.set(WalkFlags::DIRECTORY, mask.contains(Mask::ONLYDIR));
    let view = View::current()?;
    let place = view.resolve(hayate_abi::file::AT_FDCWD, &path(path_address)?, walk)?;
    let inode = place.inode()?;
    permitted(view.credentials(), &inode.attributes(), access::READ)?;
    instance.add(&inode, mask)
}

/// `inotify_rm_watch(2)`
pub fn inotify_rm_watch(fd: i32, watch: i32) -> Result<()> {
    let file = open_file(fd)?;
    Inotify::of(&file)?.remove(watch)
}

/// `signalfd(2)` in its first form, without flags.
pub fn signalfd(fd: i32, mask: usize, size: usize) -> Result<i32> {
    signalfd4(fd, mask, size, 0)
}

/// `signalfd4(2)`: makes a new descriptor, or changes the set of an old one.
pub fn signalfd4(fd: i32, mask: usize, size: usize, flags: u32) -> Result<i32> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 || size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let wanted = UserPtr::<u64>::new(mask).read()?;
    if fd == -1 {
        return install(signalfd::open(wanted, flags)?, flags & O_CLOEXEC != 0);
    }
    let file = open_file(fd)?;
    SignalFd::of(&file)?.set_wanted(wanted);
    Ok(fd)
}
