//! Which starts of a program its template serves.
//!
//! A template says it in a text of one rule a line:
//!
//! | rule | means |
//! |---|---|
//! | `option -u` | an argument that is passed over |
//! | `last -c` | an option that takes the next argument; all behind that is the program's |
//! | `script` | the first argument that does not begin with `-` ends the options |
//! | `same PYTHON*` | variables that must be as they were where the template was made |
//!
//! A start is served if its arguments end in one of the ways that the rules name, and all variables
//! of [`is_decisive`] are the same. Variables that change how any program is loaded are always
//! decisive ([`ALWAYS`]).
//!
//! The text is kept as it is and read again at each start: it is a few lines, and nothing is
//! allocated.

#![no_std]
#![forbid(unsafe_code)]

/// The longest text, in bytes.
pub const LONGEST: usize = 4096;

/// Variables that decide about every program: of the dynamic linker and the C library, which read
/// them before a program is ready.
pub const ALWAYS: [&[u8]; 3] = [b"LD_*", b"GLIBC_TUNABLES", b"MALLOC_*"];

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule<'a> {
    Option(&'a [u8]),
    Last(&'a [u8]),
    Script,
    Same(&'a [u8]),
}

/// Reads a line; `None` if it is no rule.
fn rule(line: &[u8]) -> Option<Rule<'_>> {
    if line == b"script" {
        return Some(Rule::Script);
    }
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (word, value) = (line.get(..space)?, line.get(space + 1..)?);
    if value.is_empty() || value.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    let is_option = value.len() > 1 && value.starts_with(b"-");
    match word {
        b"option" if is_option => Some(Rule::Option(value)),
        b"last" if is_option => Some(Rule::Last(value)),
        b"same" if !value.contains(&b'=') => Some(Rule::Same(value)),
        _ => None,
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

fn rules(text: &[u8]) -> impl Iterator<Item = Rule<'_>> {
    lines(text).filter_map(rule)
}

/// Whether a text is made of rules and not too long.
pub fn is_valid(text: &[u8]) -> bool {
    text.len() <= LONGEST && lines(text).all(|line| rule(line).is_some())
}

/// Whether a text serves any start at all.
pub fn serves_any(text: &[u8]) -> bool {
    rules(text).any(|rule| matches!(rule, Rule::Script | Rule::Last(_)))
}

/// Whether a start with these arguments, the program's own name left out, is one that the template
/// serves.
pub fn serves<'a>(text: &[u8], arguments: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut arguments = arguments.into_iter();
    loop {
        let Some(argument) = arguments.next() else { return false };
        if !argument.starts_with(b"-") {
            return rules(text).any(|rule| rule == Rule::Script);
        }
        if rules(text).any(|rule| rule == Rule::Last(argument)) {
            return arguments.next().is_some();
        }
        if !rules(text).any(|rule| rule == Rule::Option(argument)) {
            return false;
        }
    }
}

/// Whether a pattern, which may end with `*`, is that of a variable's name.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// Whether a variable (`NAME=VALUE`) must be the same for a start as it was for the template.
pub fn is_decisive(text: &[u8], variable: &[u8]) -> bool {
    let end = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
    let name = variable.get(..end).unwrap_or(variable);
    ALWAYS.iter().any(|pattern| matches(pattern, name))
        || rules(text).any(|rule| matches!(rule, Rule::Same(pattern) if matches(pattern, name)))
}

/// Whether the decisive variables of a start are those of the template, which keeps no others.
/// Their order does not matter.
pub fn has_same_environment<'a>(
    text: &[u8],
    kept: impl Iterator<Item = &'a [u8]> + Clone,
    variables: impl Iterator<Item = &'a [u8]> + Clone,
) -> bool {
    let decisive = variables.filter(|variable| is_decisive(text, variable));
    decisive.clone().all(|variable| kept.clone().any(|own| own == variable))
        && kept.clone().all(|own| decisive.clone().any(|variable| own == variable))
}
