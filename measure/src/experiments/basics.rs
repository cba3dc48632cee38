//! The processor without the operating system: reading time, loops, calls, CPUID.

use crate::experiment::Experiment;
use crate::sampler::Sampler;
use std::arch::asm;
use std::arch::x86_64::__cpuid;
use std::hint::black_box;

const TURNS: u32 = 1000;

/// The experiments of this file.
pub fn experiments(exits: bool) -> Vec<Experiment> {
    let mut all = vec![
        Experiment::time("cpu/timer/read", "reading the clock twice", |_, m: &mut Sampler| {
            let clock = m.clock();
            m.batch(100, || {
                black_box(clock.start());
                black_box(clock.stop());
            })
        })
        .per(100)
        .method("100 pairs of start and stop readings, as around every measurement")
        .hardware(2.0, "timer-instruction", "two fenced readings of the counter"),
        Experiment::time("cpu/timer/clock-gettime", "clock_gettime by the C library", |_, m| {
            m.batch(100, || {
                black_box(std::time::Instant::now());
            })
        })
        .per(100)
        .method("CLOCK_MONOTONIC through the vDSO where the kernel has one")
        .hardware(1.0, "timer-instruction", "one fenced reading of the counter")
        .software(30.0, "instruction", "vDSO: sequence lock, scaling, addition"),
        Experiment::time("cpu/loop", "one turn of an empty loop", |_, m| {
            m.batch(1, || empty_loop(TURNS))
        })
        .per(TURNS)
        .method("1,000 turns of decrement and branch")
        .hardware(
            1.0,
            "cycle",
            "the branch of the last turn is taken once per cycle at best",
        ),
    ];
    all.extend((0..=7).map(call));
    let cpuid = Experiment::time("cpu/cpuid", "CPUID", |_, m| {
        m.batch(20, || {
            // The instruction serialises; in a virtual machine it exits to the hypervisor.
            black_box(__cpuid(0));
        })
    })
    .per(20)
    .method("20 times CPUID leaf 0: in a virtual machine an exit to the hypervisor and back");
    all.push(if exits {
        cpuid
            .hardware(8.0, "trap", "exit and entry save and load far more state than a call")
            .software(1500.0, "instruction", "the hypervisor's dispatch and its answer")
    } else {
        cpuid.hardware(150.0, "cycle", "microcode and a drained pipeline")
    });
    all
}

/// `turns` of an empty loop.
#[inline(always)]
pub fn empty_loop(turns: u32) {
    // SAFETY: counts a register down.
    unsafe {
        asm!("2:", "dec {n:e}", "jnz 2b", n = inout(reg) turns => _, options(nomem, nostack));
    }
}

/// Does `turns` times 16 additions, each of which needs the previous result: 16 cycles of the
/// core's clock.
#[inline(always)]
pub fn dependent_additions(turns: u32) {
    // SAFETY: arithmetic in registers only.
    unsafe {
        asm!(
            "2:",
            ".rept 16",
            "add {x}, {y}",
            ".endr",
            "dec {n:e}",
            "jnz 2b",
            x = inout(reg) 1u64 => _,
            y = in(reg) 3u64,
            n = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
}

/// Instructions in one turn of [`mixed_instructions`].
pub const MIXED: u32 = 21;

/// Runs `turns` of a mixture that is typical of operating system code: loads, stores, compares and
/// branches, and in every turn one step of a pointer chase that begins at `node`, because such code
/// follows pointers into memory that is rarely in the first cache.
///
/// # Safety
/// `node` must come from [`super::chase::link`], on a mapping that still exists.
#[inline(always)]
pub unsafe fn mixed_instructions(turns: u32, mut node: usize) -> usize {
    let mut memory = [0u64; 8];
    // SAFETY: loads and stores inside `memory`, and loads along the chase.
    unsafe {
        asm!(
            "2:",
            "mov {p}, [{p}]",
            "mov {x}, {p}",
            "and {x}, 1",
            "js 3f",
            "mov {y}, [{m} + {x}*8 + 8]",
            "add {y}, 1",
            "mov [{m} + 16], {y}",
            "cmp {y}, 77",
            "je 3f",
            "lea {x}, [{x} + {y}]",
            "and {x}, 0",
            "mov [{m}], {x}",
            "mov {y}, [{m} + {x}*8 + 24]",
            "or {y}, {x}",
            "mov [{m} + 32], {y}",
            "shr {y}, 3",
            "test {y}, {y}",
            "jnz 3f",
            "3:",
            "add {y}, {x}",
            "dec {n:e}",
            "jnz 2b",
            p = inout(reg) node,
            m = in(reg) memory.as_mut_ptr(),
            x = out(reg) _,
            y = out(reg) _,
            n = inout(reg) turns => _,
            options(nostack),
        );
    }
    black_box(&memory);
    node
}

extern "C" fn callee0() -> u64 {
    0
}
extern "C" fn callee1(a: u64) -> u64 {
    a
}
extern "C" fn callee2(a: u64, b: u64) -> u64 {
    a + b
}
extern "C" fn callee3(a: u64, b: u64, c: u64) -> u64 {
    a + b + c
}
extern "C" fn callee4(a: u64, b: u64, c: u64, d: u64) -> u64 {
    a + b + c + d
}
extern "C" fn callee5(a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
    a + b + c + d + e
}
extern "C" fn callee6(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    a + b + c + d + e + f
}
extern "C" fn callee7(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> u64 {
    a + b + c + d + e + f + g
}

macro_rules! call_loop {
    ($turns:expr, $callee:ident, $($line:literal),*) => {
        // SAFETY: the callee follows the C ABI and gets its arguments; it preserves r12; the
        // registers that it may clobber are declared.
        unsafe {
            asm!(
                "2:",
                $($line,)*
                "dec r12d",
                "jnz 2b",
                callee = sym $callee,
                inout("r12") u64::from($turns) => _,
                clobber_abi("C"),
            )
        }
    };
}

/// `turns` calls of a function with `arguments` integer arguments (0-7).
#[inline(always)]
pub fn calls(arguments: u32, turns: u32) {
    match arguments {
        0 => call_loop!(turns, callee0, "call {callee}"),
        1 => call_loop!(turns, callee1, "mov edi, 1", "call {callee}"),
        2 => call_loop!(turns, callee2, "mov edi, 1", "mov esi, 2", "call {callee}"),
        3 => call_loop!(turns, callee3, "mov edi, 1", "mov esi, 2", "mov edx, 3", "call {callee}"),
        4 => call_loop!(
            turns,
            callee4,
            "mov edi, 1",
            "mov esi, 2",
            "mov edx, 3",
            "mov ecx, 4",
            "call {callee}"
        ),
        5 => call_loop!(
            turns,
            callee5,
            "mov edi, 1",
            "mov esi, 2",
            "mov edx, 3",
            "mov ecx, 4",
            "mov r8d, 5",
            "call {callee}"
        ),
        6 => call_loop!(
            turns,
            callee6,
            "mov edi, 1",
            "mov esi, 2",
            "mov edx, 3",
            "mov ecx, 4",
            "mov r8d, 5",
            "mov r9d, 6",
            "call {callee}"
        ),
        _ => call_loop!(
            turns,
            callee7,
            "mov edi, 1",
            "mov esi, 2",
            "mov edx, 3",
            "mov ecx, 4",
            "mov r8d, 5",
            "mov r9d, 6",
            "push 7",
            "call {callee}",
            "pop rax"
        ),
    }
}

fn call(arguments: u32) -> Experiment {
    Experiment::time(
        format!("cpu/call/{arguments}"),
        format!("procedure call with {arguments} integer arguments"),
        move |_, m| m.batch(1, || calls(arguments, TURNS)),
    )
    .per(TURNS)
    .without_loop()
    .method("1,000 calls of a function that adds its arguments; the empty loop is taken off")
    .at("procedure call", f64::from(arguments), "arguments")
    .hardware(2.0, "cycle", "call and return")
    .software(
        f64::from(arguments) / 2.0,
        "cycle",
        "two arguments are moved or added per cycle",
    )
}
