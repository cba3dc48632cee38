//! The published measuring method, written naively: the counter is read around a loop, divided by
//! the loop's length, and nothing is subtracted. It shares no code with the suite's method, so it
//! can serve as an oracle: `measure oracle` compares the medians of the two.
//!
//! It has two answers, with the operation in the loop and behind a call. Processors predict
//! branches by their history, also across a system call, so the two differ by up to a third (on a
//! Zen 4 whose kernel guards its returns, getppid takes 117 or 155 ns).

use crate::sys::memory::{Mapping, Pages};
use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::hint::black_box;

/// Loops for one answer, which is their median.
const LOOPS: usize = 15;

/// An operation that both methods can measure: the suite's name of it, and the naive answer in
/// ticks of the counter per operation.
pub struct Subject {
    /// Name of the experiment.
    pub name: &'static str,
    /// The naive method, in the loop and behind a call.
    pub answer: fn() -> Option<Answers>,
}

/// Ticks by operation, in the loop and behind a call.
pub type Answers = [f64; 2];

/// All of them.
pub const SUBJECTS: [Subject; 8] = [
    Subject { name: "cpu/loop", answer: empty_loop },
    Subject { name: "cpu/syscall/getppid", answer: getppid },
    Subject { name: "cpu/syscall/read-zero", answer: read_zero },
    Subject { name: "cpu/syscall/write-null", answer: write_null },
    Subject { name: "cpu/syscall/fstat", answer: fstat },
    Subject { name: "cpu/pipe/self", answer: pipe },
    Subject { name: "memory/latency/64/16K", answer: load },
    Subject { name: "memory/fault/anonymous", answer: fault },
];

fn rdtsc() -> u64 {
    // SAFETY: the caller ensured that the suite's clock is the counter, so the counter can be read.
    unsafe { _rdtsc() }
}

/// Returns the median of some loops of `count` operations, per operation.
fn around_a_loop(count: u32, mut operation: impl FnMut()) -> Option<Answers> {
    let direct = middle(|| {
        let start = rdtsc();
        for _ in 0..count {
            operation();
        }
        rdtsc() - start
    });
    let behind: &mut dyn FnMut() = black_box(&mut operation);
    let called = middle(|| {
        let start = rdtsc();
        for _ in 0..count {
            behind();
        }
        rdtsc() - start
    });
    Some([direct, called].map(|ticks| ticks / f64::from(count)))
}

fn middle(timed: impl FnMut() -> u64) -> f64 {
    let mut all: Vec<u64> = std::iter::repeat_with(timed).take(LOOPS).collect();
    all.sort_unstable();
    all[LOOPS / 2] as f64
}

/// A system call of up to three arguments.
#[inline(always)]
fn call(number: i64, a: [i64; 3]) -> i64 {
    let result;
    // SAFETY: every caller passes what its call needs: numbers, or live buffers of their length.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

fn open(path: &std::ffi::CStr, flags: i32) -> Option<i64> {
    let fd = call(libc::SYS_open, [path.as_ptr() as i64, flags.into(), 0]);
    (fd >= 0).then_some(fd)
}

fn empty_loop() -> Option<Answers> {
    let count = 100_000;
    let ticks = middle(|| {
        let start = rdtsc();
        let mut left = count;
        while left > 0 {
            left = black_box_register(left) - 1;
        }
        rdtsc() - start
    });
    Some([ticks / f64::from(count); 2])
}

/// Returns the value, kept in its register, such that the compiler knows nothing about it any more.
#[inline(always)]
fn black_box_register(mut value: u32) -> u32 {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0:e} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

fn getppid() -> Option<Answers> {
    around_a_loop(1000, || {
        black_box(call(libc::SYS_getppid, [0; 3]));
    })
}

fn read_zero() -> Option<Answers> {
    let (fd, mut block) = (open(c"/dev/zero", libc::O_RDONLY)?, [0u8; 256]);
    let place = block.as_mut_ptr() as i64;
    around_a_loop(1000, || {
        black_box(call(libc::SYS_read, [fd, place, 256]));
    })
}

fn write_null() -> Option<Answers> {
    let (fd, block) = (open(c"/dev/null", libc::O_WRONLY)?, [0u8; 256]);
    let place = block.as_ptr() as i64;
    around_a_loop(1000, || {
        black_box(call(libc::SYS_write, [fd, place, 256]));
    })
}

/// Uses a file that was just opened: the program itself, which is a file on every system.
fn fstat() -> Option<Answers> {
    let (fd, mut stat) = (open(c"/proc/self/exe", libc::O_RDONLY)?, [0u64; 18]);
    let place = stat.as_mut_ptr() as i64;
    around_a_loop(1000, || {
        black_box(call(libc::SYS_fstat, [fd, place, 0]));
    })
}

fn pipe() -> Option<Answers> {
    let mut ends = [0i32; 2];
    if call(libc::SYS_pipe, [ends.as_mut_ptr() as i64, 0, 0]) != 0 {
        return None;
    }
    let mut byte = 0u8;
    let place = &raw mut byte as i64;
    around_a_loop(500, || {
        black_box(call(libc::SYS_write, [ends[1].into(), place, 1]));
        black_box(call(libc::SYS_read, [ends[0].into(), place, 1]));
    })
}

/// Steps of 7 lines through 256 lines, each visited once. Unrolled, as in lmbench.
fn load() -> Option<Answers> {
    let mut links: Vec<usize> = vec![0; 2048];
    let base = links.as_ptr() as usize;
    for i in 0..256 {
        links[i * 8] = base + (i + 7) % 256 * 64;
    }
    let mut at = black_box(&links).as_ptr() as usize;
    // SAFETY: every followed word holds the address of another one in `links`.
    let one = |at: usize| unsafe { (at as *const usize).read_volatile() };
    let four = |at| one(one(one(one(at))));
    let sixteen = |at| four(four(four(four(at))));
    let unrolled = around_a_loop(256, || {
        at = sixteen(sixteen(sixteen(sixteen(at))));
    });
    black_box(at);
    unrolled.map(|answers| answers.map(|ticks| ticks / 64.0))
}

fn fault() -> Option<Answers> {
    const PAGES: usize = 256;
    let mut failed = false;
    let touched = middle(|| match Mapping::anonymous(PAGES * 4096, Pages::Small) {
        Ok(mut map) => {
            let bytes = map.bytes().as_mut_ptr();
            let start = rdtsc();
            for page in 0..PAGES {
                // SAFETY: within the mapping, of which nothing else is used meanwhile.
                unsafe { bytes.add(page * 4096).write_volatile(1) };
            }
            rdtsc() - start
        }
        Err(_) => {
            failed = true;
            0
        }
    });
    (!failed).then_some([touched / PAGES as f64; 2])
}
