//! Names and lines for the addresses that a panicking kernel printed.
//!
//! The kernel prints ` #N 0xffffffff80123456` for each frame of its stack: it has only addresses,
//! and the kernel's file on the host has their names.

use addr2line::Loader;
use std::path::Path;

/// Returns the log in which each frame's line is followed by the name of the address.
pub fn symbolise(log: &str, kernel: &Path) -> String {
    let Ok(loader) = Loader::new(kernel) else { return log.to_string() };
    let mut out = String::new();
    for line in log.lines() {
        out.push_str(line);
        out.push('\n');
        if let Some(address) = frame(line) {
            for text in describe(&loader, address) {
                out.push_str("       ");
                out.push_str(&text);
                out.push('\n');
            }
        }
    }
    out
}

/// Returns the address in a line `#N 0xADDRESS`, which a log may have prefixed.
fn frame(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once('#')?;
    let (number, address) = rest.trim().split_once(' ')?;
    number.parse::<u32>().ok()?;
    let digits = address.trim().strip_prefix("0x")?;
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).ok()
}

/// The functions at an address, the innermost inlined one first.
fn describe(loader: &Loader, address: u64) -> Vec<String> {
    // A return address is behind its call, which may belong to another line or function.
    let call = address.saturating_sub(1);
    let mut lines = Vec::new();
    if let Ok(mut frames) = loader.find_frames(call) {
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            let name = name.map_or_else(|| "?".to_string(), |name| plain(&name));
            match frame.location {
                Some(place) => {
                    let file = Path::new(place.file.unwrap_or("?"));
                    let file = file.strip_prefix(crate::paths::project()).unwrap_or(file);
                    let line = place.line.unwrap_or_default();
                    lines.push(format!("{name} at {}:{line}", file.display()));
                }
                None => lines.push(name),
            }
        }
    }
    if lines.is_empty()
        && let Some(name) = loader.find_symbol(call)
    {
        lines.push(plain(name));
    }
    lines
}

fn plain(name: &str) -> String {
    // The short form, without the hash.
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_recognised() {
        assert_eq!(frame("  #0 0xffffffff80123456"), Some(0xffff_ffff_8012_3456));
        assert_eq!(frame("[    1.5]   #12 0x10 "), Some(0x10));
        assert_eq!(frame("issue #7 is open"), None);
        assert_eq!(frame("no frame"), None);
    }

    /// The test's own program takes the place of a kernel: the address of one of its functions is
    /// found.
    #[test]
    fn an_address_gets_its_function() {
        let program = std::env::current_exe().unwrap();
        let loader = Loader::new(&program).unwrap();
        // Position independent: take the address from the symbols, not from memory.
        let known = (0..1u64 << 27).step_by(32).find(|&address| {
            loader.find_symbol(address).is_some_and(|name| name.contains("guest9backtrace"))
        });
        let known = known.expect("a function of this module");
        let text = symbolise(&format!("panic: x\n  #0 {:#x}\n", known + 1), &program);
        assert!(text.contains(" at cli/src/guest/backtrace.rs:"), "{text}");
        assert_eq!(text.lines().next(), Some("panic: x"));
    }
}
