//! Tests that run inside the booted kernel, when `ktest` (or `ktest=FILTER`) is on the command line
//! (`repeat=N` runs them N times). The lines are those that `cargo test` prints; the result goes to
//! the exit device: 0x10 passed, 0x11 failed.
//!
//! They are for what a program cannot reach or observe: frames, page tables, run queues, spaces
//! without a process. They are compiled with the feature `tests` only, which `./hayate` gives to
//! kernels of profile `dev`: a release kernel has none of them, and they run with the debug
//! assertions on.
//!
//! A test is declared with [`ktest!`](crate::ktest) and fails by [`check!`](crate::check); a panic
//! ends the machine as any kernel panic does.

mod checksum;
mod current;
mod hash;
mod large_pages;
mod memory;
mod netlink;
mod network;
mod overlay;
mod schedule;
mod teardown;
mod unused;
mod user_mode;
mod vfs;

use hayate_machine::{boot, info, power, time};

/// Where a check failed: file, line, expression.
pub struct Failure(pub &'static str, pub u32, pub &'static str);

/// A test: its path and its body.
pub struct Test {
    /// Module path and name.
    pub name: &'static str,
    /// The body.
    pub run: fn() -> Result<(), Failure>,
}

#[allow(unsafe_code)]
mod registry {
    use super::Test;

    /// All tests of the kernel.
    #[linkme::distributed_slice]
    pub static KERNEL_TESTS: [Test];
}
pub use registry::KERNEL_TESTS;

/// Declares a kernel test: `ktest! { fn adds_up() { check!(1 + 1 == 2); } }`.
#[macro_export]
macro_rules! ktest {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        const _: () = {
            fn $name() -> Result<(), $crate::tests::Failure> {
                $body
                Ok(())
            }
            #[linkme::distributed_slice($crate::tests::KERNEL_TESTS)]
            static TEST: $crate::tests::Test = $crate::tests::Test {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: $name,
            };
        };
    };
}

/// Ends the test with a failure if the condition is false.
#[macro_export]
macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            return Err($crate::tests::Failure(file!(), line!(), stringify!($condition)));
        }
    };
}

/// Whether the command line asks for the tests.
pub fn is_wanted() -> bool {
    boot::flag("ktest")
}

/// Runs the requested tests and ends the machine with the result.
pub fn run() -> ! {
    let filter = boot::option("ktest").unwrap_or("");
    let repeat = boot::option("repeat").and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in (0..repeat).flat_map(|_| KERNEL_TESTS.iter()) {
        if !test.name.contains(filter) {
            skipped += 1;
            continue;
        }
        let before = time::monotonic_ns();
        let result = (test.run)();
        let milliseconds = (time::monotonic_ns() - before) / 1_000_000;
        match result {
            Ok(()) => {
                passed += 1;
                info!("test {} ... ok ({milliseconds} ms)", test.name);
            }
            Err(Failure(file, line, text)) => {
                failed += 1;
                info!("test {} ... FAILED ({file}:{line}: {text})", test.name);
            }
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    info!("test result: {verdict}. {passed} passed; {failed} failed; {skipped} filtered out");
    power::exit_device(if failed == 0 { 0x10 } else { 0x11 });
    power::off()
}
