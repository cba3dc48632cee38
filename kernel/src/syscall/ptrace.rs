//! `ptrace(2)`: the requests, decoded (kernel/ptrace.c and arch/x86/kernel/ptrace.c of Linux 6.1).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::file::Iovec;
use hayate_abi::ptrace::*;
use hayate_abi::rseq::AREA_SIZE;
use hayate_abi::signal::{NSIG, Siginfo, SignalSet};
use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::user::{self, UserPtr};
use zerocopy::IntoBytes;

use super::signal;
use crate::memory::Space;
use crate::process;
use crate::process::access;
use crate::process::signal::UNBLOCKABLE;
use crate::process::tracing::link::{Manner, attach, detach, kill, trace_me};
use crate::process::tracing::tracee::{State, Until};
use crate::process::tracing::{Tracee, find};
use crate::process::visible;
use crate::reclaim::growth::Grow;

/// Bytes of a word, and of all general registers.
const WORD: usize = 8;
const REGISTERS: usize = USER_REGISTERS * WORD;
/// Bytes of the part of the extended state that FXSAVE knows.
const LEGACY: usize = 512;
/// Where the extended state tells which components there are.
const COMPONENTS: usize = 464;

/// `ptrace(2)`
pub fn ptrace(request: i64, pid: i32, address: usize, data: usize) -> Result<usize> {
    if request == PTRACE_TRACEME {
        return trace_me().map(|()| 0);
    }
    let number = u32::try_from(pid).ok().filter(|&number| number != 0).ok_or(Errno::ESRCH)?;
    if matches!(request, PTRACE_ATTACH | PTRACE_SEIZE) {
        let target = visible::thread(number).ok_or(Errno::ESRCH)?;
        let manner = if request == PTRACE_ATTACH {
            Manner::Stops
        } else {
            let options = data as u32;
            if address != 0 || data & !(PTRACE_O_KNOWN as usize) != 0 {
                return Err(Errno::EIO);
            }
            Manner::GoesOn(options)
        };
        return attach(&target, manner).map(|()| 0);
    }
    let tracee = find(&process::current(), visible::meant(number))?;
    match request {
        PTRACE_KILL => {
            kill(tracee.thread.process());
            return Ok(0);
        }
        PTRACE_INTERRUPT => {
            if tracee.thread.execution().is_none() {
                return Err(Errno::ESRCH);
            }
            if !tracee.seized {
                return Err(Errno::EIO);
            }
            tracee.trap(|state| state.trap = true);
            return Ok(0);
        }
        _ => {}
    }
    in_stop(&tracee, |_| Ok(()))?;
    go_on(&tracee, request, data)
        .or_else(|| memory(&tracee, request, address, data))
        .or_else(|| registers(&tracee, request, address, data))
        .or_else(|| signals(&tracee, request, address, data))
        .unwrap_or(Err(Errno::EIO))
}

/// Looks at a thread in a stop, or changes it. Fails with `ESRCH` if it is in none.
fn in_stop<T>(tracee: &Tracee, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
    let mut state = tracee.state.lock();
    if state.answers() && state.linked { work(&mut state) } else { Err(Errno::ESRCH) }
}

/// The requests after which the thread goes on, and `PTRACE_LISTEN`.
fn go_on(tracee: &Arc<Tracee>, request: i64, data: usize) -> Option<Result<usize>> {
    let until = match request {
        PTRACE_CONT => Until::default(),
        PTRACE_SYSCALL => Until { call: true, ..Until::default() },
        PTRACE_SINGLESTEP => Until { step: true, ..Until::default() },
        PTRACE_SYSEMU => Until { emulated: true, ..Until::default() },
        PTRACE_SYSEMU_SINGLESTEP => Until { emulated: true, step: true, call: false },
        PTRACE_DETACH => {
            return Some(signal_of(data).map(|signal| {
                detach(tracee, signal);
                0
            }));
        }
        PTRACE_LISTEN => return Some(listen(tracee)),
        _ => return None,
    };
    Some(signal_of(data).and_then(|signal| tracee.go_on(signal, until)).map(|()| 0))
}

/// A signal, or none. Fails with `EIO` for another number.
fn signal_of(data: usize) -> Result<u32> {
    if data <= NSIG as usize { Ok(data as u32) } else { Err(Errno::EIO) }
}

fn listen(tracee: &Tracee) -> Result<usize> {
    let seized = tracee.seized;
    let changed = in_stop(tracee, |state| {
        if !seized || !state.is_event_stop() {
            return Err(Errno::EIO);
        }
        state.listening = true;
        Ok(state.notify || state.trap)
    })?;
    if changed {
        // It stops anew at once.
        tracee.trap(|_| ());
    }
    Ok(0)
}

/// The space of a stopped thread, if the tracer may look into it (`ptrace_access_vm`). Fails with
/// `EIO`.
fn space(tracee: &Tracee) -> Result<Arc<Space>> {
    let process = tracee.thread.process();
    let may = || access::may_trace_undumpable(&tracee.credentials, &tracee.thread);
    let open = || access::is_dumpable(process) || may();
    let space = process.steady(|| if open() { tracee.thread.space() } else { None });
    space.ok_or(Errno::EIO)
}

fn memory(tracee: &Tracee, request: i64, address: usize, data: usize) -> Option<Result<usize>> {
    Some(match request {
        PTRACE_PEEKTEXT | PTRACE_PEEKDATA => peek(tracee, address, data),
        PTRACE_POKETEXT | PTRACE_POKEDATA => space(tracee).and_then(|space| {
            space.note_outside();
            space.fill_forced(address, &data.to_le_bytes()).map_err(|_| Errno::EIO)?;
            Ok(0)
        }),
        PTRACE_PEEKUSER => in_stop(tracee, |state| state.user_word(address))
            .and_then(|word| UserPtr::new(data).write(&word))
            .map(|()| 0),
        PTRACE_POKEUSER => {
            in_stop(tracee, |state| state.set_user_word(address, data as u64)).map(|()| 0)
        }
        _ => return None,
    })
}

fn peek(tracee: &Tracee, address: usize, data: usize) -> Result<usize> {
    let mut word = [0; WORD];
    if space(tracee)?.read_forced(address, &mut word) != WORD {
        return Err(Errno::EIO);
    }
    user::copy_out(data, &word)?;
    Ok(0)
}

fn registers(tracee: &Tracee, request: i64, address: usize, data: usize) -> Option<Result<usize>> {
    Some(match request {
        PTRACE_GETREGS => {
            general(tracee, REGISTERS).and_then(|bytes| user::copy_out(data, &bytes)).map(|()| 0)
        }
        PTRACE_SETREGS => set_general(tracee, data, REGISTERS).map(|()| 0),
        PTRACE_GETFPREGS => {
            legacy(tracee, LEGACY).and_then(|bytes| user::copy_out(data, &bytes)).map(|()| 0)
        }
        PTRACE_SETFPREGS => set_legacy(tracee, data, LEGACY).map(|()| 0),
        PTRACE_GETREGSET | PTRACE_SETREGSET => {
            regset(tracee, address, data, request == PTRACE_SETREGSET)
        }
        _ => return None,
    })
}

/// The first bytes of `struct user_regs_struct`.
fn general(tracee: &Tracee, length: usize) -> Result<Vec<u8>> {
    let registers = in_stop(tracee, |state| Ok(state.registers()))?;
    let mut bytes = Vec::new();
    bytes.make_room_exact(REGISTERS)?;
    for register in registers {
        bytes.extend_from_slice(&register.to_le_bytes());
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn set_general(tracee: &Tracee, from: usize, length: usize) -> Result<()> {
    let mut words = [0u64; USER_REGISTERS];
    let words = words.get_mut(..length / WORD).ok_or(Errno::EINVAL)?;
    UserPtr::<u64>::new(from).read_slice(words)?;
    in_stop(tracee, |state| {
        words.iter().enumerate().try_for_each(|(index, word)| state.set_register(index, *word))
    })
}

/// The first bytes of the extended state, with the components that there are.
fn extended(tracee: &Tracee) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.make_room_exact(FpuState::core_size())?;
    in_stop(tracee, |state| {
        bytes.extend_from_slice(&state.fpu);
        let software = bytes.get_mut(COMPONENTS..LEGACY).ok_or(Errno::EIO)?;
        software.fill(0);
        for (place, byte) in software.iter_mut().zip(state.components.to_le_bytes()) {
            *place = byte;
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// The part that FXSAVE knows.
fn legacy(tracee: &Tracee, length: usize) -> Result<Vec<u8>> {
    let mut bytes = extended(tracee)?;
    if let Some(software) = bytes.get_mut(COMPONENTS..LEGACY) {
        software.fill(0);
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn set_legacy(tracee: &Tracee, from: usize, length: usize) -> Result<()> {
    let mut bytes = extended(tracee)?;
    user::copy_in(bytes.get_mut(..length).ok_or(Errno::EINVAL)?, from)?;
    // Both of its components are in use now (`xfpregs_set`).
    if let Some(used) = bytes.get_mut(LEGACY) {
        *used |= 3;
    }
    set_state(tracee, &bytes)
}

fn set_state(tracee: &Tracee, bytes: &[u8]) -> Result<()> {
    if !FpuState::is_valid(bytes) {
        return Err(Errno::EINVAL);
    }
    in_stop(tracee, |state| {
        if state.fpu.len() != bytes.len() {
            return Err(Errno::EIO);
        }
        state.fpu.copy_from_slice(bytes);
        state.fpu_changed = true;
        Ok(())
    })
}

/// `PTRACE_GETREGSET` and `PTRACE_SETREGSET`.
fn regset(tracee: &Tracee, kind: usize, at: usize, sets: bool) -> Result<usize> {
    let pointer = UserPtr::<Iovec>::new(at);
    let mut vector = pointer.read()?;
    let size = match kind {
        NT_PRSTATUS => REGISTERS,
        NT_PRFPREG => LEGACY,
        NT_X86_XSTATE if FpuState::core_size() > LEGACY => FpuState::core_size(),
        _ => return Err(Errno::EINVAL),
    };
    let (base, given) = (vector.iov_base as usize, vector.iov_len as usize);
    if !given.is_multiple_of(WORD) {
        return Err(Errno::EINVAL);
    }
    let length = given.min(size);
    match (kind, sets) {
        (NT_PRSTATUS, true) => set_general(tracee, base, length)?,
        (NT_PRSTATUS, false) => user::copy_out(base, &general(tracee, length)?)?,
        // All of it or nothing (`xfpregs_set`).
        (NT_PRFPREG, true) if length != size => return Err(Errno::EINVAL),
        (NT_PRFPREG, true) => set_legacy(tracee, base, length)?,
        (NT_PRFPREG, false) => user::copy_out(base, &legacy(tracee, length)?)?,
        (_, true) => {
            // All of it or nothing (`xstateregs_set`).
            if length != size {
                return Err(Errno::EFAULT);
            }
            let mut bytes = extended(tracee)?;
            user::copy_in(&mut bytes, base)?;
            set_state(tracee, &bytes)?;
        }
        (_, false) => {
            let mut bytes = extended(tracee)?;
            bytes.truncate(length);
            user::copy_out(base, &bytes)?;
        }
    }
    vector.iov_len = length as u64;
    pointer.write(&vector)?;
    Ok(0)
}

fn signals(tracee: &Tracee, request: i64, address: usize, data: usize) -> Option<Result<usize>> {
    Some(match request {
        PTRACE_SETOPTIONS => set_options(tracee, data),
        PTRACE_GETEVENTMSG => in_stop(tracee, |state| Ok(state.message))
            .and_then(|message| UserPtr::new(data).write(&message))
            .map(|()| 0),
        PTRACE_GETSIGINFO => in_stop(tracee, |state| state.info.ok_or(Errno::EINVAL))
            .and_then(|info| UserPtr::new(data).write(&info))
            .map(|()| 0),
        PTRACE_SETSIGINFO => UserPtr::<Siginfo>::new(data).read().and_then(|_| {
            let new = signal::read_info(data, None)?;
            in_stop(tracee, |state| {
                *state.info.as_mut().ok_or(Errno::EINVAL)? = new;
                Ok(0)
            })
        }),
        PTRACE_PEEKSIGINFO => peek_queue(tracee, address, data),
        PTRACE_GETSIGMASK if address != size_of::<SignalSet>() => Err(Errno::EINVAL),
        PTRACE_SETSIGMASK if address != size_of::<SignalSet>() => Err(Errno::EINVAL),
        PTRACE_GETSIGMASK => in_stop(tracee, |_| Ok(tracee.thread.shown_mask()))
            .and_then(|mask| UserPtr::new(data).write(&mask))
            .map(|()| 0),
        PTRACE_SETSIGMASK => UserPtr::<SignalSet>::new(data).read().and_then(|mask| {
            in_stop(tracee, |_| {
                tracee.thread.set_mask_in_stop(mask & !UNBLOCKABLE);
                Ok(0)
            })
        }),
        PTRACE_GET_SYSCALL_INFO => syscall_info(tracee, address, data),
        PTRACE_GET_RSEQ_CONFIGURATION => sequences(tracee, address, data),
        _ => return None,
    })
}

fn set_options(tracee: &Tracee, data: usize) -> Result<usize> {
    if data & !(PTRACE_O_KNOWN as usize) != 0 {
        return Err(Errno::EINVAL);
    }
    in_stop(tracee, |state| {
        state.options = data as u32;
        Ok(0)
    })
}

/// `PTRACE_PEEKSIGINFO`: copies of pending signals.
fn peek_queue(tracee: &Tracee, from: usize, to: usize) -> Result<usize> {
    let wanted: PeekSiginfo = UserPtr::new(from).read()?;
    if wanted.flags & !PTRACE_PEEKSIGINFO_SHARED != 0 || wanted.nr < 0 {
        return Err(Errno::EINVAL);
    }
    let shared = wanted.flags & PTRACE_PEEKSIGINFO_SHARED != 0;
    let thread = &tracee.thread;
    let queue = if shared { &thread.process().queue } else { &thread.queue };
    let to = UserPtr::<Siginfo>::new(to);
    let mut done = 0;
    while done < wanted.nr as usize {
        let at = usize::try_from(wanted.off).ok().and_then(|first| first.checked_add(done));
        let Some(info) = at.and_then(|at| queue.peek(at)) else { break };
        if let Err(error) = to.at(done).write(&info) {
            return if done == 0 { Err(error) } else { Ok(done) };
        }
        done += 1;
    }
    Ok(done)
}

/// `PTRACE_GET_SYSCALL_INFO`: returns how much there is to tell.
fn syscall_info(tracee: &Tracee, room: usize, to: usize) -> Result<usize> {
    let (info, size) = in_stop(tracee, |state| {
        let regs = &state.regs;
        let mut info = SyscallInfo {
            arch: AUDIT_ARCH_X86_64,
            instruction_pointer: regs.rip,
            stack_pointer: regs.rsp,
            ..SyscallInfo::default()
        };
        let mut size = SyscallInfo::NONE_SIZE;
        let filtered = state.is_event(PTRACE_EVENT_SECCOMP);
        if filtered || state.is_at_call() && state.message == PTRACE_EVENTMSG_SYSCALL_ENTRY {
            let [a, b, c, d, e, f] = regs.arguments();
            info.words = [regs.orig_rax, a, b, c, d, e, f];
            info.op = PTRACE_SYSCALL_INFO_ENTRY;
            size = SyscallInfo::ENTRY_SIZE;
            if filtered {
                info.op = PTRACE_SYSCALL_INFO_SECCOMP;
                info.data = state.message as u32;
                size = SyscallInfo::SECCOMP_SIZE;
            }
        } else if state.is_at_call() && state.message == PTRACE_EVENTMSG_SYSCALL_EXIT {
            info.op = PTRACE_SYSCALL_INFO_EXIT;
            let fails = (-4095..0).contains(&(regs.rax as i64));
            info.words[..2].copy_from_slice(&[regs.rax, u64::from(fails)]);
            size = SyscallInfo::EXIT_SIZE;
        }
        Ok((info, size))
    })?;
    let bytes = info.as_bytes();
    user::copy_out(to, bytes.get(..size.min(room)).unwrap_or(bytes))?;
    Ok(size)
}

/// `PTRACE_GET_RSEQ_CONFIGURATION`: returns how much there is to tell. A size is told without an
/// area, too (`ptrace_get_rseq_configuration`).
fn sequences(tracee: &Tracee, room: usize, to: usize) -> Result<usize> {
    let area = in_stop(tracee, |_| Ok(tracee.thread.sequences.registration()))?;
    let told = RseqConfiguration {
        rseq_abi_pointer: area.area as u64,
        rseq_abi_size: AREA_SIZE as u32,
        signature: if area.area == 0 { 0 } else { area.signature },
        ..RseqConfiguration::default()
    };
    let bytes = told.as_bytes();
    user::copy_out(to, bytes.get(..room).unwrap_or(bytes))?;
    Ok(bytes.len())
}
