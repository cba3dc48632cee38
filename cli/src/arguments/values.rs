//! Checks the values of options, and reports wrong ones.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Parses `512M`, `2G`, `1024` (MiB) into MiB.
pub fn memory(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "write it as 512M or 2G".to_string())?;
    let scale = match unit.to_ascii_uppercase().as_str() {
        "" | "M" | "MB" | "MIB" => 1,
        "G" | "GB" | "GIB" => 1024,
        _ => return Err("write it as 512M or 2G".into()),
    };
    match number.checked_mul(scale) {
        Some(mib) if (32..=1 << 20).contains(&mib) => Ok(mib),
        _ => Err("it must be between 32M and 1024G".into()),
    }
}

/// Parses a policy of the kernel, in the syntax of `recycle=`.
pub fn policy(text: &str) -> Result<String, String> {
    match hayate_recycler::Policy::parse(text) {
        Ok(policy) => Ok(policy.to_string()),
        Err(_) => {
            let names: Vec<_> = hayate_recycler::Policy::names().collect();
            Err(format!("use {}, joined by + or -", names.join(", ")))
        }
    }
}

/// Parses the name of a machine that stays, which is also the name of a folder.
pub fn name(text: &str) -> Result<String, String> {
    let part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match text.chars().next() {
        Some(first)
            if first.is_ascii_alphanumeric() && text.chars().all(part) && text.len() <= 63 =>
        {
            Ok(text.into())
        }
        _ => {
            Err("use letters, digits, '.', '_' and '-', at most 63, a letter or digit first".into())
        }
    }
}

/// The program, modules or script of a template (`--template`).
pub fn template(text: &str) -> Result<String, String> {
    let (kind, value) = text.split_once('=').map_or((text, None), |(k, v)| (k, Some(v)));
    let module = |c: char| c.is_alphanumeric() || "._:,".contains(c);
    let is_good = match (kind, value) {
        ("python" | "perl", value) => value.is_none_or(|modules| modules.chars().all(module)),
        ("perl-script", Some(path)) => path.starts_with('/'),
        _ => false,
    };
    if is_good {
        return Ok(text.into());
    }
    Err("say python, python=MODULE,..., perl, perl=MODULE,... or perl-script=/PATH".into())
}

/// A user, and perhaps a group, as the command line names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The words.
    pub text: String,
    /// Their numbers, if they are numbers.
    pub numbers: Option<(u32, u32)>,
}

/// Parses `1000`, `1000:100`, `web` or `web:www`. The largest number means "none" to Linux
/// (setresuid(2)).
pub fn user(text: &str) -> Result<User, String> {
    const FORM: &str = "write it as 1000, 1000:100, NAME or NAME:GROUP";
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| match text.parse() {
        _ if text.is_empty() || text.starts_with(['+', '-']) => Err(FORM.to_string()),
        Ok(u32::MAX) => {
            Err("4294967295 means no user to Linux; the largest is 4294967294".to_string())
        }
        Ok(number) => Ok(Some(number)),
        Err(_) if text.chars().all(|c| c.is_ascii_digit()) => Err(FORM.to_string()),
        Err(_) if text.chars().any(|c| c.is_control() || c == ':') => Err(FORM.to_string()),
        Err(_) => Ok(None),
    };
    let numbers = number(user)?.zip(number(group)?);
    Ok(User { text: text.into(), numbers })
}

/// Returns a parser for a value that need not be UTF-8, which `check` examines.
pub fn checked(
    check: fn(&[u8]) -> Result<(), &'static str>,
) -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(move |value| check(value.as_bytes()).map(|()| value))
}

/// Accepts any value that is not empty.
pub fn not_empty(value: &[u8]) -> Result<(), &'static str> {
    if value.is_empty() { Err("the value is empty") } else { Ok(()) }
}

/// Accepts `NAME=VALUE` or `NAME`.
pub fn variable(value: &[u8]) -> Result<(), &'static str> {
    if value.is_empty() || value[0] == b'=' {
        Err("the variable has no name; write it as NAME=VALUE")
    } else {
        Ok(())
    }
}

/// Accepts words of a kernel's command line, which is one line.
pub fn words(text: &str) -> Result<String, String> {
    if text.contains(|c: char| c.is_ascii_control() && c != '\t') {
        return Err("the kernel's command line must be one line of text".into());
    }
    Ok(text.into())
}

/// Accepts a processor in the syntax of QEMU's `-cpu`. Only QEMU knows whether there is such a
/// model.
pub fn processor(text: &str) -> Result<String, String> {
    let named = |c: char| c.is_ascii_alphanumeric() || "-_.,+=".contains(c);
    match text.chars().next() {
        Some(first) if first.is_ascii_alphanumeric() && text.chars().all(named) => Ok(text.into()),
        _ => Err("write it as Haswell or max,-xsave".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_users() {
        assert_eq!(memory("512M"), Ok(512));
        assert_eq!(memory("2g"), Ok(2048));
        assert_eq!(memory("1024"), Ok(1024));
        assert!(memory("1").is_err());
        assert!(memory("12X").is_err());
        assert!(memory("99999999999999999999G").is_err());
        let numbers = |text| user(text).map(|user| user.numbers);
        assert_eq!(numbers("1000"), Ok(Some((1000, 1000))));
        assert_eq!(numbers("1000:5"), Ok(Some((1000, 5))));
        assert_eq!(numbers("4294967294:0"), Ok(Some((u32::MAX - 1, 0))));
        for names in ["root", "web:www", "1000:users", "www-data:5"] {
            assert_eq!(numbers(names), Ok(None), "{names}");
        }
        for wrong in [
            "",
            "1000:",
            ":5",
            "-1",
            "+1",
            "4294967295",
            "0:4294967295",
            "99999999999",
            "a:b:c",
            "a\n",
            "-x",
        ] {
            assert!(user(wrong).is_err(), "{wrong}");
        }
        for right in ["a", "m1", "A-b_c.d", &"x".repeat(63)] {
            assert_eq!(name(right), Ok(right.into()));
        }
        for wrong in ["", ".", "..", "-a", "a/b", "a b", "ä", &"x".repeat(64)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(policy("text+all"), Ok("all+text".into()));
        assert!(policy("everything").is_err());
    }
}
