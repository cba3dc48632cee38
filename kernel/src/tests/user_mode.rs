//! Tests of user mode: real programs of machine code, without processes around them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_machine::context::{ObjectCell, Principal};
use hayate_machine::cpu::{self, Local, OfObject, OfPrincipal};
use hayate_machine::fpu::FpuState;
use hayate_machine::time;
use hayate_machine::trap::{self, UserRegs};

use crate::memory::{Layout, Limits, Space};
use crate::memory::{MapRequest, Placement};
use crate::memory::{Protection, RegionFlags};
use crate::schedule::{Execution, UserThread, WaitQueue, exit_current, sleep_until, start};
use crate::{check, ktest};

const MS: u64 = 1_000_000;

/// Counts rounds at (rdi) until the word at (rsi) is set; each round makes the test's system call
/// 2 and spins a little, and checks that registers and a vector register have kept their values.
/// Then system call 1 with 0 (right) or 1 (wrong).
///
/// ```text
///    mov r12, rdi; mov r13, rsi; mov rbx, 0x1122334455667788; mov r15, 77; movq xmm7, r12
/// 1: inc qword ptr [r12]; mov eax, 2; mov rdi, [r12]; syscall
///    sub rax, 1; cmp rax, rdi; jne 9f; cmp r15, 77; jne 9f
///    mov ecx, 20000; 3: dec ecx; jnz 3b
///    movq rax, xmm7; cmp rax, r12; jne 9f; cmp qword ptr [r13], 0; je 1b
///    xor edi, edi; mov eax, 1; syscall
/// 9: mov edi, 1; mov eax, 1; syscall; ud2
/// ```
#[rustfmt::skip]
const PROGRAM: [u8; 107] = [
    0x49, 0x89, 0xfc, 0x49, 0x89, 0xf5, 0x48, 0xbb, 0x88, 0x77, 0x66, 0x55,
    0x44, 0x33, 0x22, 0x11, 0x49, 0xc7, 0xc7, 0x4d, 0x00, 0x00, 0x00, 0x66,
    0x49, 0x0f, 0x6e, 0xfc, 0x49, 0xff, 0x04, 0x24, 0xb8, 0x02, 0x00, 0x00,
    0x00, 0x49, 0x8b, 0x3c, 0x24, 0x0f, 0x05, 0x48, 0x83, 0xe8, 0x01, 0x48,
    0x39, 0xf8, 0x75, 0x29, 0x49, 0x83, 0xff, 0x4d, 0x75, 0x23, 0xb9, 0x20,
    0x4e, 0x00, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0x66, 0x48, 0x0f, 0x7e, 0xf8,
    0x4c, 0x39, 0xe0, 0x75, 0x10, 0x49, 0x83, 0x7d, 0x00, 0x00, 0x74, 0xc8,
    0x31, 0xff, 0xb8, 0x01, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xbf, 0x01, 0x00,
    0x00, 0x00, 0xb8, 0x01, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x0f, 0x0b,
];

const CODE: usize = 0x40_0000;
const DATA: usize = 0x50_0000;

static ENDED: AtomicUsize = AtomicUsize::new(0);
static WRONG: AtomicUsize = AtomicUsize::new(0);
static DONE: WaitQueue = WaitQueue::new();

extern "C" fn system_call(regs: &mut UserRegs) {
    match regs.orig_rax {
        1 => {
            WRONG.fetch_add(regs.rdi as usize, Ordering::SeqCst);
            ENDED.fetch_add(1, Ordering::SeqCst);
            DONE.wake_all();
            exit_current()
        }
        2 => regs.rax = regs.rdi + 1,
        _ => regs.rax = -38i64 as u64,
    }
}

struct Program {
    space: ObjectCell<Space>,
}

hayate_machine::per_cpu! {
    static CURRENT: Local<Program, OfPrincipal> = Local::new();
}

impl Principal for Program {
    type Object = Space;

    fn slot() -> &'static Local<Program, OfPrincipal> {
        &CURRENT
    }

    fn object_slot() -> &'static Local<Space, OfObject> {
        &crate::memory::CURRENT
    }

    fn object_cell(&self) -> &ObjectCell<Space> {
        &self.space
    }
}

impl UserThread for Program {
    fn switch_in(&self) {
        if let Some(space) = self.space.get() {
            space.activate();
        }
    }

    fn switch_out(&self) {
        crate::memory::leave();
    }
}

fn new_space() -> Option<Arc<Space>> {
    let layout = Layout::new(8 << 20, None);
    let space = Space::new(layout, Limits::default()).ok()?;
    for (address, protection) in [
        (CODE, Protection::READ | Protection::WRITE | Protection::EXECUTE),
        (DATA, Protection::READ | Protection::WRITE),
    ] {
        let request = MapRequest {
            address,
            place: Placement::Fixed,
            protection,
            flags: RegionFlags::MAY_WRITE | RegionFlags::MAY_EXECUTE,
            ..MapRequest::anonymous(4096)
        };
        space.map(request).ok()?;
    }
    (space.write_foreign(CODE, &PROGRAM) == PROGRAM.len()).then_some(space)
}

fn rounds(space: &Space, index: usize) -> u64 {
    let mut bytes = [0; 8];
    space.read_foreign(DATA + 8 + 8 * index, &mut bytes);
    u64::from_le_bytes(bytes)
}

/// How often the shares are looked at until they are even.
const LOOKS: usize = 20;

/// Whether every program ran and, with one CPU, none ran three times as much as another. With
/// several CPUs the shares depend on how the host runs them.
fn are_even(shares: &[u64]) -> bool {
    let (least, most) = (shares.iter().min().copied(), shares.iter().max().copied());
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    least > 0 && (cpu::count() > 1 || most < 3 * least)
}

ktest! {
    fn programs_run_are_preempted_fairly_and_keep_their_registers() {
        let handler = trap::set_syscall_handler(system_call);
        ENDED.store(0, Ordering::SeqCst);
        WRONG.store(0, Ordering::SeqCst);
        let count = 3 * cpu::count();
        let mut spaces = Vec::new();
        for index in 0..count {
            // Of every three programs, two share a space and the third has its own.
            if index % 3 != 1 {
                let Some(space) = new_space() else {
                    check!(false);
                    break;
                };
                spaces.push(space);
            }
            let (Some(space), Some(fpu)) = (spaces.last().cloned(), FpuState::new_init()) else {
                check!(false);
                break;
            };
            let mut regs = UserRegs::start(CODE as u64, DATA as u64 + 4096);
            regs.rdi = (DATA + 8 + 8 * index) as u64;
            regs.rsi = DATA as u64;
            let program = Arc::new(Program { space: ObjectCell::new(Some(space)) });
            let Ok(execution) = Execution::new_user(program, &regs, fpu) else {
                check!(false);
                break;
            };
            start(&execution);
        }
        let counted = || -> Vec<u64> {
            (0..count).map(|index| spaces.iter().map(|space| rounds(space, index)).sum()).collect()
        };
        // A busy host takes its part of each program's time: then the rounds of one look are
        // uneven, but not those of every look.
        let mut before = counted();
        let mut shares = Vec::new();
        let mut slept = Ok(());
        for _ in 0..LOOKS {
            slept = slept.and(sleep_until(time::monotonic_ns() + 300 * MS, false));
            let now = counted();
            shares = now.iter().zip(&before).map(|(now, before)| now - before).collect();
            if are_even(&shares) {
                break;
            }
            before = now;
        }
        for space in &spaces {
            space.write_foreign(DATA, &1u64.to_le_bytes());
        }
        let end = time::monotonic_ns() + 20_000 * MS;
        let ended = DONE.wait_interruptible(Some(end), || {
            (ENDED.load(Ordering::SeqCst) == count).then_some(())
        });
        if let Some(handler) = handler {
            trap::set_syscall_handler(handler);
        }
        check!(slept.is_ok());
        check!(ended == Ok(()));
        check!(WRONG.load(Ordering::SeqCst) == 0);
        hayate_machine::info!("rounds: {shares:?}");
        check!(are_even(&shares));
    }
}
