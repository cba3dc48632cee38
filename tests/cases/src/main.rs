//! Programs that pass on Linux first, and then in Hayate: the kernel services that Rust's standard
//! library and rustix use, by area.

mod files;
mod harness;
mod own;
mod processes;
mod threads;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = processes::helper() {
        return ExitCode::from(code);
    }
    let cases: Vec<harness::Case> =
        [threads::CASES, files::CASES, processes::CASES, own::CASES].concat();
    harness::main("rust-std", &cases)
}
