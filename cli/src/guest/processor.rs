//! The model of the processor: `--cpu`.
//!
//! QEMU knows the models, but lists them only when it is started. An unknown name is a wrong
//! command line and is reported before anything is built. Features of a model are left to QEMU,
//! which has no list of them.

use crate::failure::{Failure, USAGE};
use crate::tool;
use anyhow::Result;

/// All features that the accelerator supports.
const USUAL: &str = "max";

/// Checks that QEMU knows the model.
pub fn check(given: Option<&str>) -> Result<()> {
    let Some(given) = given else { return Ok(()) };
    let output = tool::run(tool::command("qemu-system-x86_64")?.args(["-cpu", "help"]))?;
    let name = given.split(',').next().unwrap_or_default();
    if known(&String::from_utf8_lossy(&output.stdout), name) {
        return Ok(());
    }
    let text = format!(
        "--cpu {given}: this QEMU knows no processor {name}; qemu-system-x86_64 -cpu help lists them"
    );
    Err(Failure::error(USAGE, text))
}

/// Whether the list that QEMU printed contains the name: lines of `x86 NAME DESCRIPTION`, and from
/// QEMU 9 on of ` NAME DESCRIPTION`, up to an empty line. A list in another format is ignored.
fn known(list: &str, name: &str) -> bool {
    let models = list.lines().skip(1).take_while(|line| !line.trim().is_empty());
    let names = models.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().and_then(|word| if word == "x86" { words.next() } else { Some(word) })
    });
    let mut names = names.peekable();
    names.peek().is_none() || names.any(|known| known == name)
}

/// Returns the value of `-cpu`. When QEMU counts instructions, it counts each repetition of a
/// string instruction; without "erms" no kernel prefers those.
pub fn option(given: Option<&str>, deterministic: bool) -> String {
    let model = given.unwrap_or(USUAL);
    if deterministic { format!("{model},-erms") } else { model.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_in_both_forms_of_the_list() {
        let former = "Available CPUs:\nx86 486    (alias)\nx86 max   All\n\nRecognized CPUID flags:\n  3dnow\n";
        let later =
            "Available CPUs:\n  486    (alias)\n  max   All\n\nRecognized CPUID flags:\n  3dnow\n";
        for list in [former, later] {
            assert!(known(list, "486") && known(list, "max"));
            assert!(!known(list, "x86") && !known(list, "3dnow") && !known(list, "help"));
        }
        assert!(known("", "anything"));
    }
}
