//! `bpf(2)` for programs that say which devices a control group may use
//! ([`crate::process::cgroup::devices`]; kernel/bpf/syscall.c of Linux 6.1).
//!
//! Other kinds of programs ([`kind`]), maps, types and links are `EINVAL`, as in a kernel that was
//! built without them. The order of checks and errors follows Linux.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_device_programs::{Context, MOST, Program, Refusal, SIZE};
use hayate_machine::user;
use hayate_machine::user::UserPtr;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::file::{credentials, install, open_file, string};
use crate::credentials::Capability;
use crate::fs::cgroup::group_of;
use crate::process::cgroup::devices;
use crate::process::cgroup::filters::{Filter, flags, kind};
use crate::process::cgroup::group::Group;
use crate::reclaim::growth::Grow;
use crate::time::monotonic_ns;
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::O_RDWR;
use crate::vfs::open_file::{FileOps, Traits};

/// `enum bpf_cmd`
mod command {
    pub const LOAD: i32 = 5;
    pub const ATTACH: i32 = 8;
    pub const DETACH: i32 = 9;
    pub const NEXT_NUMBER: i32 = 11;
    pub const OF_NUMBER: i32 = 13;
    pub const INFO: i32 = 15;
    pub const QUERY: i32 = 16;
}

/// `BPF_CGROUP_DEVICE`
const DEVICE_PLACE: u32 = 6;

/// A descriptor of a program.
struct ProgramFile(Arc<Filter>);

impl FileOps for ProgramFile {
    fn traits(&self) -> Traits {
        Traits::empty()
    }
}

fn open(filter: Arc<Filter>) -> Result<i32> {
    let file = anonymous::open("bpf-prog", Arc::new(ProgramFile(filter)), O_RDWR)?;
    install(file, true)
}

/// The program about devices of a descriptor: `EBADF`, and `EINVAL` for another file or program.
fn device_program_of(descriptor: u32) -> Result<Arc<Filter>> {
    let program = program_of(descriptor)?;
    if program.kind == kind::DEVICES { Ok(program) } else { Err(Errno::EINVAL) }
}

/// The program of a descriptor: `EBADF`, and `EINVAL` for another file.
fn program_of(descriptor: u32) -> Result<Arc<Filter>> {
    let file = open_file(descriptor.cast_signed())?;
    file.ops_as::<ProgramFile>().map(|it| Arc::clone(&it.0)).ok_or(Errno::EINVAL)
}

/// What a command is given: as much as the program says, and zeros.
struct Given([u8; 144]);

impl Given {
    /// Copies it (`bpf_check_uarg_tail_zero`): `E2BIG` if there is something that no command knows.
    fn copy(from: usize, size: usize) -> Result<Given> {
        if size > 4096 {
            return Err(Errno::E2BIG);
        }
        let mut given = Given([0; 144]);
        user::copy_in_growing(&mut given.0, from, size)?;
        Ok(given)
    }

    /// The fields of a command; `EINVAL` if something behind them is set (`CHECK_ATTR`).
    fn fields<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T> {
        let (fields, rest) = T::read_from_prefix(&self.0).map_err(|_| Errno::EINVAL)?;
        if rest.iter().any(|&byte| byte != 0) { Err(Errno::EINVAL) } else { Ok(fields) }
    }
}

/// `bpf(2)`
pub fn bpf(command: i32, attributes: usize, size: u32) -> Result<i32> {
    // As with `kernel.unprivileged_bpf_disabled`.
    let credentials = credentials();
    if !credentials.has(Capability::Bpf) && !credentials.has(Capability::SysAdmin) {
        return Err(Errno::EPERM);
    }
    let given = Given::copy(attributes, size as usize)?;
    match command {
        command::LOAD => load(&given.fields()?),
        command::ATTACH => attach(&given.fields()?),
        command::DETACH => detach(&given.fields()?),
        command::NEXT_NUMBER => next_number(&given.fields()?, attributes),
        command::OF_NUMBER => of_number(&given.fields()?),
        command::INFO => info(&given.fields()?, attributes),
        command::QUERY => query(&given.fields()?, attributes),
        _ => Err(Errno::EINVAL),
    }
}

/// `BPF_PROG_LOAD`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    place: u32,
    types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    attached_type: u32,
    attached_program: u32,
    relocation_count: u32,
    descriptors: u64,
    relocations: u64,
    relocation_size: u32,
    rest: u32,
}

fn load(load: &Load) -> Result<i32> {
    /// The longest license that is looked at.
    const LICENSE: usize = 128;
    if load.flags != 0 {
        return Err(Errno::EINVAL);
    }
    string(load.license as usize, LICENSE).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })?;
    let count = load.count as usize;
    if count == 0 || count > MOST {
        return Err(Errno::E2BIG);
    }
    // Without types there is nothing that they could describe.
    let has_more = [load.types, load.function_count, load.line_count, load.attached_type]
        .into_iter()
        .chain([load.attached_program, load.relocation_count, load.interface])
        .any(|field| field != 0);
    let context = match load.kind {
        kind::DEVICES => Context::Access,
        kind::PACKETS if load.place <= 1 => Context::Nothing,
        _ => return Err(Errno::EINVAL),
    };
    if has_more {
        return Err(Errno::EINVAL);
    }
    let length = load.name.iter().position(|&byte| byte == 0).ok_or(Errno::EINVAL)?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let (name, rest) = load.name.split_at(length);
    if !name.iter().all(is_name) || rest.iter().any(|&byte| byte != 0) {
        return Err(Errno::EINVAL);
    }
    let mut bytes = Vec::new();
    bytes.make_room_exact(count * SIZE)?;
    bytes.resize(count * SIZE, 0);
    user::copy_in(&mut bytes, load.instructions as usize)?;
    // `bpf_verifier_log_attr_valid`
    let wants_log = load.log_level != 0;
    if wants_log && (load.log == 0 || load.log_size < 128) {
        return Err(Errno::EINVAL);
    }
    let checked = Program::check(&bytes, context);
    if wants_log {
        let text = checked.as_ref().err().map_or("", |refusal| explained(*refusal));
        let mut text = String::from(text).into_bytes();
        text.push(0);
        user::copy_out(load.log as usize, &text)?;
    }
    let program = checked.map_err(|refusal| match refusal {
        Refusal::Size => Errno::E2BIG,
        Refusal::Invalid => Errno::EINVAL,
        Refusal::Access => Errno::EACCES,
        Refusal::Memory => Errno::ENOMEM,
    })?;
    open(Filter::new(load.kind, program, load.name, credentials().uid, monotonic_ns()))
}

/// Why a program was not taken, for the log of its maker.
fn explained(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Size => "the program has no instructions, or too many\n",
        Refusal::Invalid => {
            "the program has an instruction that is none or not supported (stack, maps, helper \
             functions and loops are not), a way out of it, or one that is not reached\n"
        }
        Refusal::Access => {
            "the program uses a register that is not set, or reads beside the context\n"
        }
        Refusal::Memory => "there is no memory for the check\n",
    }
}

/// `BPF_PROG_ATTACH`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct Attach {
    group: u32,
    program: u32,
    place: u32,
    flags: u32,
    replaced: u32,
}

/// The group of a descriptor: `EBADF`.
fn group(descriptor: u32) -> Result<Arc<Group>> {
    let directory = open_file(descriptor.cast_signed())?;
    group_of(&directory)
}

fn attach(attach: &Attach) -> Result<i32> {
    const ALL: u32 = flags::ALLOW_OVERRIDE | flags::ALLOW_MULTI | flags::REPLACE;
    if attach.flags & !ALL != 0 || attach.place != DEVICE_PLACE {
        return Err(Errno::EINVAL);
    }
    let program = device_program_of(attach.program)?;
    let group = group(attach.group)?;
    const REPLACES: u32 = flags::ALLOW_MULTI | flags::REPLACE;
    let replaced = if attach.flags & REPLACES == REPLACES {
        Some(device_program_of(attach.replaced)?)
    } else {
        None
    };
    devices::attach(&group, program, attach.flags, replaced.as_ref())?;
    Ok(0)
}

/// `BPF_PROG_DETACH`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct Detach {
    group: u32,
    program: u32,
    place: u32,
}

fn detach(detach: &Detach) -> Result<i32> {
    if detach.place != DEVICE_PLACE {
        return Err(Errno::EINVAL);
    }
    let group = group(detach.group)?;
    // A descriptor of another kind counts as none (`cgroup_bpf_prog_detach`).
    let program = device_program_of(detach.program).ok();
    devices::detach(&group, program.as_ref())?;
    Ok(0)
}

/// `BPF_PROG_GET_NEXT_ID`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct NextNumber {
    start: u32,
    next: u32,
}

fn next_number(next: &NextNumber, attributes: usize) -> Result<i32> {
    credentials().require(Capability::SysAdmin)?;
    if next.start >= i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    let number = Filter::after(next.start).ok_or(Errno::ENOENT)?;
    UserPtr::<u32>::new(attributes.saturating_add(4)).write(&number)?;
    Ok(0)
}

/// `BPF_PROG_GET_FD_BY_ID`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct OfNumber {
    number: u32,
}

fn of_number(of: &OfNumber) -> Result<i32> {
    credentials().require(Capability::SysAdmin)?;
    open(Filter::of(of.number).ok_or(Errno::ENOENT)?)
}

/// `BPF_OBJ_GET_INFO_BY_FD`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct Info {
    descriptor: u32,
    length: u32,
    place: u64,
}

/// The beginning of `struct bpf_prog_info`: nothing behind it concerns these programs.
#[repr(C)]
#[derive(FromZeros, IntoBytes, Immutable)]
struct ProgramInfo {
    kind: u32,
    number: u32,
    tag: [u8; 8],
    compiled_length: u32,
    length: u32,
    compiled: u64,
    instructions: u64,
    loaded: u64,
    maker: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
    interface: u32,
    is_gpl: u32,
    network_device: u64,
    network_number: u64,
}

fn info(info: &Info, attributes: usize) -> Result<i32> {
    /// The size of the structure in Linux 6.1.
    const WHOLE: usize = 232;
    let filter = program_of(info.descriptor)?;
    let length = info.length as usize;
    let place = info.place as usize;
    if length > 4096 {
        return Err(Errno::E2BIG);
    }
    for at in WHOLE..length {
        if UserPtr::<u8>::new(place.saturating_add(at)).read()? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let told = ProgramInfo {
        kind: filter.kind,
        number: filter.id,
        tag: filter.program.tag(),
        length: filter.program.size() as u32,
        loaded: filter.loaded,
        maker: credentials().user.shown_user(filter.maker),
        name: filter.name,
        ..ProgramInfo::new_zeroed()
    };
    let mut bytes = [0; WHOLE];
    let known = told.as_bytes();
    bytes[..known.len()].copy_from_slice(known);
    let length = length.min(WHOLE);
    user::copy_out(place, &bytes[..length])?;
    UserPtr::<u32>::new(attributes.saturating_add(4)).write(&(length as u32))?;
    Ok(0)
}

/// `BPF_PROG_QUERY`
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
struct Query {
    group: u32,
    place: u32,
    flags: u32,
    attached: u32,
    numbers: u64,
    count: u32,
    rest: u32,
}

fn query(query: &Query, attributes: usize) -> Result<i32> {
    const IN_FORCE: u32 = 1;
    credentials().require(Capability::NetAdmin)?;
    if query.flags & !IN_FORCE != 0 || query.place != DEVICE_PLACE {
        return Err(Errno::EINVAL);
    }
    let group = group(query.group)?;
    let (numbers, flags) = devices::list(&group, query.flags & IN_FORCE != 0)?;
    UserPtr::<u32>::new(attributes.saturating_add(12)).write(&flags)?;
    UserPtr::<u32>::new(attributes.saturating_add(24)).write(&(numbers.len() as u32))?;
    let asked = query.count as usize;
    if asked == 0 || query.numbers == 0 || numbers.is_empty() {
        return Ok(0);
    }
    let fitting = numbers.len().min(asked);
    user::copy_out(query.numbers as usize, numbers[..fitting].as_bytes())?;
    if fitting < numbers.len() { Err(Errno::ENOSPC) } else { Ok(0) }
}
