//! Numbers for people: times, rates, sizes.

use crate::run::Quantity;

/// Three significant digits, more for large whole numbers: `1.23`, `45.6`, `789`, `12345`.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Nanoseconds as `12.3 ns`, `4.56 µs`, `7.89 ms` or `1.23 s`.
pub fn time(ns: f64) -> String {
    match ns.abs() {
        v if v < 999.5 => format!("{} ns", digits(ns)),
        v if v < 999.5e3 => format!("{} µs", digits(ns / 1e3)),
        v if v < 999.5e6 => format!("{} ms", digits(ns / 1e6)),
        _ => format!("{} s", digits(ns / 1e9)),
    }
}

/// Bytes per second as `850 kB/s`, `1.23 GB/s` (powers of ten).
pub fn bandwidth(bytes_per_second: f64) -> String {
    match bytes_per_second.abs() {
        v if v < 999.5 => format!("{} B/s", digits(bytes_per_second)),
        v if v < 999.5e3 => format!("{} kB/s", digits(bytes_per_second / 1e3)),
        v if v < 999.5e6 => format!("{} MB/s", digits(bytes_per_second / 1e6)),
        _ => format!("{} GB/s", digits(bytes_per_second / 1e9)),
    }
}

/// A value of `quantity` with its unit.
pub fn value(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Time => time(value),
        Quantity::Bandwidth => bandwidth(value),
    }
}

/// A size in bytes as `512 B`, `48 KiB`, `1.25 MiB` (powers of two).
pub fn size(bytes: f64) -> String {
    let exact = |v: f64, unit: &str| {
        if (v - v.round()).abs() < 0.005 {
            format!("{v:.0} {unit}")
        } else {
            format!("{} {unit}", digits(v))
        }
    };
    const K: f64 = 1024.0;
    match bytes {
        v if v < K => exact(v, "B"),
        v if v < K * K => exact(v / K, "KiB"),
        v if v < K * K * K => exact(v / (K * K), "MiB"),
        v => exact(v / (K * K * K), "GiB"),
    }
}

/// A change as `+12.3 %` or `-4.0 %`, from a ratio.
pub fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// Parses a size such as `64M`, `1GiB`, `4096` or `512 KB`; units are powers of two.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing() {
        assert_eq!(time(0.123), "0.12 ns");
        assert_eq!(time(9.999), "10.0 ns");
        assert_eq!(time(999.9), "1.00 µs");
        assert_eq!(time(45_600.0), "45.6 µs");
        assert_eq!(time(2.5e9), "2.50 s");
        assert_eq!(bandwidth(1.5e9), "1.50 GB/s");
        assert_eq!(size(49_152.0), "48 KiB");
        assert_eq!(size(1.25 * 1048576.0), "1.25 MiB");
        assert_eq!(change(1.1), "+10.0 %");
    }

    #[test]
    fn parsing() {
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size(" 512 KB "), Some(512 << 10));
        assert_eq!(parse_size("4096"), Some(4096));
        for bad in ["", "M", "1X", "-1", "99999999999999999999", "99999999999999T"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
