//! How much of the kernel's stack a function of the kernel takes.
//!
//! A kernel stack has 16 KiB, and all calls between a system call and a device stand on it at once;
//! a packet to this machine adds the calls that receive it. One function with large values of its
//! own can make that too deep, and no test needs to meet the deepest path. So each function of the
//! optimised kernel is looked at: the disassembler shows by how much it lowers the stack pointer
//! (Linux has `CONFIG_FRAME_WARN`, 2,048 bytes of 16 KiB, for the same reason).

use super::report::{Case, Verdict};
use super::{Report, Trial};
use crate::arguments::Profile;
use crate::{compile, tool};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// The largest frame of a function, in bytes.
const MOST: u64 = 3584;

/// Functions that may have a larger one, by a part of their names, with the reason.
const LARGER: [(&str, &str); 4] = [
    ("hayate_machine::boot::start", "it runs once, on the stack of the boot"),
    ("hayate_machine::boot::make_memory", "it runs once, on the stack of the boot"),
    ("in_place::store::bank::", "a page of the store; it runs once, at boot"),
    (
        "hayate_kernel::process::dump::course::end",
        "a core file's page; the thread's stack is empty",
    ),
];

/// The trial.
pub fn trial() -> Trial {
    Trial::new("artifacts/functions_of_the_kernel_leave_stack_to_others", |_| look())
}

fn look() -> Result<Report> {
    let kernel = compile::kernel(Profile::Release)?;
    let mut objdump = tool::command("objdump")?;
    objdump.args(["--disassemble", "--no-show-raw-insn", "--demangle"]).arg(kernel);
    let text = tool::run(&mut objdump)?.stdout;
    let frames = frames(&String::from_utf8_lossy(&text));
    ensure!(frames.len() > 1000, "the disassembly shows only {} functions", frames.len());
    let found: Vec<String> = frames
        .into_iter()
        .filter(|(name, bytes)| {
            *bytes > MOST && !LARGER.iter().any(|(part, _)| name.contains(part))
        })
        .map(|(name, bytes)| format!("{bytes} bytes: {name}"))
        .collect();
    let verdict = match found.len() {
        0 => Verdict::Passed,
        count => Verdict::Failed(format!("{count} with more than {MOST} bytes")),
    };
    Ok(Report { cases: vec![Case::new("", verdict)], output: found.join("\n") })
}

/// Returns the functions that lower the stack pointer, with the bytes that each takes: all
/// subtractions together, because a frame of more than a page is taken page by page.
fn frames(disassembly: &str) -> BTreeMap<String, u64> {
    let mut frames = BTreeMap::new();
    let mut function = String::new();
    for line in disassembly.lines() {
        // `ffffffff80202600 <name>:`, and by name alone two functions may be the same.
        if let Some((address, name)) =
            line.strip_suffix(">:").and_then(|line| line.split_once(" <"))
        {
            function = format!("{name} at {address}");
        } else if let Some(bytes) = subtracted(line) {
            *frames.entry(function.clone()).or_default() += bytes;
        }
    }
    frames
}

/// Returns the bytes by which an instruction lowers the stack pointer: `sub $0x1f8,%rsp`.
fn subtracted(line: &str) -> Option<u64> {
    let (_, operands) = line.split_once("sub ")?;
    let number = operands.trim().strip_prefix("$0x")?.strip_suffix(",%rsp")?;
    u64::from_str_radix(number, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_a_disassembly() {
        let text = "\nffffffff80202600 <a::b<c>::d>:\n\
                    ffffffff80202600:\tpush   %rbp\n\
                    ffffffff80202601:\tsub    $0x1000,%rsp\n\
                    ffffffff80202608:\tmovq   $0x0,(%rsp)\n\
                    ffffffff80202610:\tsub    $0x50,%rsp\n\
                    ffffffff80202617:\tsub    $0x8,%rax\n\
                    ffffffff80202630 <e>:\n\
                    ffffffff80202630:\tsub    $0x10,%rsp\n";
        let expected = [
            ("a::b<c>::d at ffffffff80202600".to_owned(), 0x1050),
            ("e at ffffffff80202630".to_owned(), 0x10),
        ];
        assert_eq!(frames(text), BTreeMap::from(expected));
    }
}
