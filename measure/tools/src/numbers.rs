//! Numbers as text, and what they mean.

/// Returns the kind of the numbers, and what they cannot show.
pub fn kind(counting: bool) -> [&'static str; 2] {
    if counting {
        [
            "Numbers are instructions that the guest executed, counted by QEMU, and not time.",
            "They cannot show what instructions cost: caches, TLB misses, changes of mode and \
                 of address space, exits to a hypervisor. A repeated string instruction counts \
                 once for each repetition. Intervals tell the scatter within a boot; another \
                 comparison of the same systems prints the same numbers, but for what waits for \
                 the host: a disk that is written, a folder, a network.",
        ]
    } else {
        [
            "Numbers are time by the guest's clock, on this host, with all that disturbs it.",
            "Where QEMU translates in software (tcg) an instruction takes about as long as any \
                 other and the caches and TLB of the processor are hidden: only ratios mean \
                 something then. Where the processor runs the guest itself (kvm) it is the time \
                 that users see.",
        ]
    }
}

/// Formats a number of things, with singular or plural.
pub fn counted(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Formats a number of processors.
pub fn processors(number: u8) -> String {
    match number {
        1 => "one processor".into(),
        2 => "two processors".into(),
        more => format!("{more} processors"),
    }
}

/// Formats a count of instructions: with tenths for few instructions, and separators for thousands.
pub fn count(value: f64) -> String {
    if value < 1000.0 && value.fract().abs() > 0.05 {
        return format!("{value:.1}");
    }
    separated(&format!("{value:.0}"))
}

/// 1234567 as 1,234,567.
pub fn grouped(value: u64) -> String {
    separated(&value.to_string())
}

fn separated(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_tenths_or_separators() {
        assert_eq!(count(79.12), "79.1");
        assert_eq!(count(79.0), "79");
        assert_eq!(count(11_800.5), "11,800");
        assert_eq!(count(1_234_567.0), "1,234,567");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
