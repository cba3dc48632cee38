//! The kernel command line: words separated by spaces, `name` or `name=value`, with double quotes
//! around values that contain spaces. Words after `--` are for init.

use super::info::info;

fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |c: char| {
        if c == '"' {
            quoted = !quoted;
        }
        c.is_ascii_whitespace() && !quoted
    })
    .filter(|word| !word.is_empty())
}

pub(super) fn find<'a>(line: &'a str, name: &str) -> Option<Option<&'a str>> {
    let mut found = None;
    for word in words(line).take_while(|word| *word != "--") {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value.trim_matches('"'))),
            None => (word, None),
        };
        if key == name {
            found = Some(value);
        }
    }
    found
}

/// Returns the value of the last `name=value` on the command line.
pub fn option(name: &str) -> Option<&'static str> {
    find(info().command_line, name).flatten()
}

/// Whether the word `name` (with or without a value) is on the command line.
pub fn flag(name: &str) -> bool {
    find(info().command_line, name).is_some()
}

/// Returns all values of `name=value`, in order: for options that may be repeated
/// (`virtio_mmio.device=`).
pub fn options(name: &'static str) -> impl Iterator<Item = &'static str> {
    words(info().command_line)
        .take_while(|word| *word != "--")
        .filter_map(move |word| word.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value.trim_matches('"'))
}

/// Returns the words after `--`: arguments of init.
pub fn init_arguments() -> impl Iterator<Item = &'static str> {
    words(info().command_line).skip_while(|word| *word != "--").skip(1)
}
