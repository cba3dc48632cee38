//! The parts of processes as the registry shows them ([`crate::recycle::registry`]): processes,
//! executions, work areas, programs, and the spaces with their regions and attachments.
//!
//! Each query finds everything anew in the table of processes and the list of spaces.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::stack::STACK_SIZE;

use super::pids;
use super::record::Process;
use super::thread::{Thread, current};
use crate::memory;
use crate::memory::{PAGE, RegionFlags, Space};
use crate::reclaim::growth::Grow;
use crate::recycle::ResourceKind;
use crate::recycle::registry;
use crate::recycle::registry::{ResourceAttributes, ResourceRow, ResourceSource, Serial};
use crate::vfs::mount;

/// Registers all sources of this module with the registry; boot calls it once.
pub fn register() {
    for source in [
        &Processes as &'static dyn ResourceSource,
        &Executions,
        &WorkAreas,
        &Programs,
        &Spaces,
        &REGIONS,
        &ATTACHMENTS,
    ] {
        registry::register(source);
    }
}

/// Calls `visit` for every thread with its process.
fn each_thread(mut visit: impl FnMut(&Arc<Process>, &Arc<Thread>)) -> Result<()> {
    for process in pids::processes()? {
        for thread in process.threads()? {
            visit(&process, &thread);
        }
    }
    Ok(())
}

fn owner(process: &Process) -> u32 {
    process.first_thread().map_or(0, |thread| thread.credentials().uid)
}

/// The name of a process's first thread.
fn name(process: &Process) -> Vec<u8> {
    process.first_thread().map_or_else(Vec::new, |thread| thread.shown_name().to_vec())
}

struct Processes;

impl Processes {
    fn find(serial: Serial) -> Result<Arc<Process>> {
        let all = pids::processes()?;
        let found = all.into_iter().find(|process| Serial::of(process.serial()) == serial);
        found.ok_or(Errno::ENOENT)
    }
}

impl ResourceSource for Processes {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Process
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        for process in pids::processes()? {
            show(ResourceRow {
                serial: Serial::of(process.serial()),
                name: name(&process),
                owner: owner(&process),
                bytes: size_of::<Process>() as u64,
                kept: false,
            });
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let process = Self::find(serial)?;
        to.add("pid", format_args!("{}", process.id()))?;
        to.add("parent", format_args!("{}", process.parent_id()))?;
        to.add("threads", format_args!("{}", process.thread_count()))?;
        to.add("ended", format_args!("{}", if process.is_zombie() { "yes" } else { "no" }))?;
        if let Some(executable) = process.executable() {
            to.add("program", format_args!("{}", executable.page_cache().id()))?;
        }
        if let Some(space) = process.first_thread().and_then(|thread| thread.space()) {
            to.add("space", format_args!("{}", space.serial()))?;
        }
        for thread in process.threads()? {
            if let Some(execution) = thread.execution() {
                to.add("execution", format_args!("{}", execution.id()))?;
            }
        }
        Ok(())
    }

    fn control(&self, serial: Serial, attribute: &str, value: &str) -> Result<()> {
        let process = Self::find(serial)?;
        match attribute {
            "name" => {
                let first = process.first_thread().ok_or(Errno::ENOENT)?;
                first.set_name(value.as_bytes());
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

struct Executions;

impl Executions {
    fn find(
        serial: Serial,
    ) -> Result<(Arc<Process>, Arc<Thread>, Arc<crate::schedule::Execution>)> {
        let mut found = None;
        each_thread(|process, thread| {
            if let Some(execution) = thread.execution()
                && Serial::of(execution.id()) == serial
            {
                found = Some((process.clone(), thread.clone(), execution));
            }
        })?;
        found.ok_or(Errno::ENOENT)
    }
}

impl ResourceSource for Executions {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Execution
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        each_thread(|_, thread| {
            if let Some(execution) = thread.execution() {
                show(ResourceRow {
                    serial: Serial::of(execution.id()),
                    name: thread.shown_name().to_vec(),
                    owner: thread.credentials().uid,
                    bytes: size_of::<crate::schedule::Execution>() as u64,
                    kept: false,
                });
            }
        })
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let (process, thread, execution) = Self::find(serial)?;
        to.add("process", format_args!("{}", process.serial()))?;
        to.add("thread", format_args!("{}", thread.id()))?;
        to.add("processor", format_args!("{}", execution.cpu()))?;
        to.add("runnable", format_args!("{}", if execution.is_runnable() { "yes" } else { "no" }))?;
        to.add("nice", format_args!("{}", execution.nice()))?;
        to.add("run-ns", format_args!("{}", execution.run_time()))
    }

    fn control(&self, serial: Serial, attribute: &str, value: &str) -> Result<()> {
        let (.., execution) = Self::find(serial)?;
        match attribute {
            "nice" => {
                let nice: i8 = value.parse().map_err(|_| Errno::EINVAL)?;
                if !(-20..=19).contains(&nice) {
                    return Err(Errno::EINVAL);
                }
                execution.set_nice(nice);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The work area of a thread: its kernel stack and its register save area. It has the serial of the
/// execution for which it was made.
struct WorkAreas;

impl ResourceSource for WorkAreas {
    fn kind(&self) -> ResourceKind {
        ResourceKind::WorkArea
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        let bytes = (STACK_SIZE + FpuState::signal_size()) as u64;
        Executions.visit(&mut |entry| show(ResourceRow { bytes, ..entry }))
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let (process, ..) = Executions::find(serial)?;
        to.add("process", format_args!("{}", process.serial()))?;
        to.add("execution", format_args!("{serial}"))?;
        to.add("stack-bytes", format_args!("{STACK_SIZE}"))
    }
}

/// The programs that processes execute; a program has the serial of its page cache.
struct Programs;

impl ResourceSource for Programs {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Program
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        let mut seen: Vec<u64> = Vec::new();
        let Some(root) = mount::root() else { return Ok(()) };
        for process in pids::processes()? {
            let Some(executable) = process.executable() else { continue };
            let id = executable.page_cache().id();
            if seen.contains(&id) {
                continue;
            }
            seen.make_room(1)?;
            seen.push(id);
            let attributes = executable.file().inode().attributes();
            show(ResourceRow {
                serial: Serial::of(id),
                name: executable.location().display(&root)?,
                owner: attributes.uid,
                bytes: executable.page_cache().size(),
                kept: false,
            });
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let mut used = 0;
        let mut found = None;
        for process in pids::processes()? {
            if let Some(executable) = process.executable()
                && Serial::of(executable.page_cache().id()) == serial
            {
                used += 1;
                found = Some(executable);
            }
        }
        let executable = found.ok_or(Errno::ENOENT)?;
        to.add("plate", format_args!("{serial}"))?;
        to.add("resident-pages", format_args!("{}", executable.page_cache().resident()))?;
        to.add("processes", format_args!("{used}"))
    }
}

/// A space with the processes that use it.
struct Used {
    space: Arc<Space>,
    name: Vec<u8>,
    owner: u32,
    /// How many processes use it; 0 if only a descriptor or a pool holds it.
    processes: usize,
}

/// All spaces. A space that no process uses has no name and belongs to root.
fn spaces() -> Result<Vec<Used>> {
    let mut all: Vec<Used> = Vec::new();
    let mut lacking = false;
    memory::all_spaces::for_each(|space| {
        lacking |= all.make_room(1).is_err();
        if !lacking {
            all.push(Used { space: space.clone(), name: Vec::new(), owner: 0, processes: 0 });
        }
    });
    if lacking {
        return Err(Errno::ENOMEM);
    }
    for process in pids::processes()? {
        let Some(space) = process.first_thread().and_then(|thread| thread.space()) else {
            continue;
        };
        if let Some(used) = all.iter_mut().find(|used| Arc::ptr_eq(&used.space, &space)) {
            used.processes += 1;
            used.name = name(&process);
            used.owner = owner(&process);
        }
    }
    Ok(all)
}

fn space(number: u64) -> Result<Used> {
    let all = spaces()?;
    all.into_iter().find(|used| used.space.serial() == number).ok_or(Errno::ENOENT)
}

struct Spaces;

impl ResourceSource for Spaces {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Space
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        for used in spaces()? {
            show(ResourceRow {
                serial: Serial::of(used.space.serial()),
                name: used.name,
                owner: used.owner,
                bytes: (used.space.resident().pages() * PAGE) as u64,
                kept: used.processes == 0,
            });
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let used = space(serial.number)?;
        let resident = used.space.resident();
        let (minor, major) = used.space.faults();
        to.add("processes", format_args!("{}", used.processes))?;
        to.add("attached-bytes", format_args!("{}", used.space.size()))?;
        to.add("attachments", format_args!("{}", used.space.shown(false)?.len()))?;
        to.add("resident-pages", format_args!("{}", resident.pages()))?;
        to.add("faults", format_args!("{}", minor + major))?;
        to.add("faults-read", format_args!("{major}"))
    }
}

/// Regions and their attachments. An attached region has the serial of its space with the address
/// where it is attached. The two kinds show two sides of it: its content, and where and with which
/// access rights a space has it.
struct Attached(ResourceKind);

static REGIONS: Attached = Attached(ResourceKind::Region);
static ATTACHMENTS: Attached = Attached(ResourceKind::Attachment);

/// The role of a region in its process.
fn role(shown: &memory::ShownRegion) -> &'static str {
    use memory::Protection;
    let writable = shown.protection.contains(Protection::WRITE);
    let executable = shown.protection.contains(Protection::EXECUTE);
    match (&shown.backing, shown.name) {
        (_, "[heap]") => "heap",
        (_, "[stack]") => "stack",
        (Some(_), _) if executable => "text",
        (Some(_), _) if shown.flags.contains(RegionFlags::SHARED) => "shared",
        (Some(_), _) if writable => "data",
        (Some(_), _) => "read-only",
        (None, _) if shown.protection.is_empty() => "reserved",
        (None, _) => "bss",
    }
}

impl ResourceSource for Attached {
    fn kind(&self) -> ResourceKind {
        self.0
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        for used in spaces()? {
            for region in used.space.shown(false)? {
                show(ResourceRow {
                    serial: Serial { number: used.space.serial(), part: Some(region.start as u64) },
                    name: role(&region).into(),
                    owner: used.owner,
                    bytes: (region.end - region.start) as u64,
                    kept: used.processes == 0,
                });
            }
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let used = space(serial.number)?;
        let all = used.space.shown(true)?;
        let found = all.iter().find(|region| Some(region.start as u64) == serial.part);
        let region = found.ok_or(Errno::ENOENT)?;
        if self.0 == ResourceKind::Attachment {
            use memory::Protection;
            let right = |what, letter| if region.protection.contains(what) { letter } else { '-' };
            to.add("space", format_args!("{}", serial.number))?;
            to.add("region", format_args!("{serial}"))?;
            to.add("start", format_args!("{:#x}", region.start))?;
            to.add("end", format_args!("{:#x}", region.end))?;
            return to.add(
                "rights",
                format_args!(
                    "{}{}{}",
                    right(Protection::READ, 'r'),
                    right(Protection::WRITE, 'w'),
                    right(Protection::EXECUTE, 'x')
                ),
            );
        }
        match &region.backing {
            None => to.add("content", format_args!("zeroes"))?,
            Some(backing) => {
                to.add("content", format_args!("plate {}", backing.page_cache.id()))?;
                to.add("offset", format_args!("{}", region.offset))?;
                if let (Some(place), Some(root)) = (backing.location(), mount::root()) {
                    to.add("file", format_args!("{}", place.display(&root)?.escape_ascii()))?;
                }
            }
        }
        to.add("resident-pages", format_args!("{}", region.pages.resident))?;
        to.add("own-pages", format_args!("{}", region.pages.anonymous))?;
        to.add("shared-pages", format_args!("{}", region.pages.shared))
    }
}

/// Whether a user may see a resource: addresses in memory and names of files are visible to their
/// owner and to root only. In another PID namespace than the first nobody sees any, for they tell
/// of processes outside.
pub fn may_see(kind: ResourceKind, of: u32) -> bool {
    if current().process.own_pid_namespace().is_some() {
        return false;
    }
    let viewer = current().credentials();
    let private = matches!(
        kind,
        ResourceKind::Plate | ResourceKind::Space | ResourceKind::Region | ResourceKind::Attachment
    );
    let is_own = viewer.is_outermost() && viewer.euid == of;
    !private || is_own || viewer.has(crate::credentials::Capability::SysPtrace)
}
