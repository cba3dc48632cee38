//! The command line.

use crate::Failure;
use lexopt::Arg;

/// The text of `--help`.
pub const HELP: &str = "\
Shows and controls the resources that Hayate's processes are made of.

Usage: resource [--json] COMMAND

Commands:
  list [KIND] [--name NAME]     all resources, of one kind, or those with a name
  show KIND/SERIAL              the attributes of one; KIND/NAME does if the name is unique
  set KIND/SERIAL ATTR VALUE    change an attribute: a process's name, an execution's nice,
                                a plate's resident-pages (to 0)
  pools                         counts of each kind: made, reused, stored, dropped, kept
  limit KIND BYTES              how much may be kept of a kind (root)
  policy [NEW]                  what is kept; with NEW, change it (root)
  drop [KIND]                   give up what is kept (root)
  frames                        how much memory there is, in frames of 4 KiB

Kinds: plate program region space attachment work-area process execution image
Policies: none, program, space, region, all, all+text, full, and these joined by + and -:
  attachment, text, work-area, process, execution, debt, image

Examples:
  resource list process
  resource show process/sh
  resource show space/12 --json
  resource set execution/40 nice 5
  resource pools
  resource policy all+text
  resource policy full-attachment
  resource drop program

Exit status: 0 done; 1 there is no such resource, or the command failed; 2 the command line is wrong
";

/// The kinds of resource.
pub const KINDS: [&str; 9] = [
    "plate",
    "program",
    "region",
    "space",
    "attachment",
    "work-area",
    "process",
    "execution",
    "image",
];

/// The requested command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// The help.
    Help,
    /// Resources, one a line.
    List {
        /// Of this kind only.
        kind: Option<String>,
        /// With this name only.
        name: Option<String>,
    },
    /// One resource.
    Show {
        /// Its kind.
        kind: String,
        /// Its serial or name.
        which: String,
    },
    /// Changes an attribute.
    Set {
        /// Its kind.
        kind: String,
        /// Its serial or name.
        which: String,
        /// The attribute.
        attribute: String,
        /// Its value.
        value: String,
    },
    /// The counts.
    Pools,
    /// Sets a limit.
    Limit {
        /// Of this kind.
        kind: String,
        /// In bytes.
        bytes: u64,
    },
    /// The policy.
    Policy {
        /// The new policy.
        new: Option<String>,
    },
    /// Drops kept resources.
    Drop {
        /// Of this kind only.
        kind: Option<String>,
    },
    /// The memory.
    Frames,
}

/// The whole command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The requested command.
    pub command: Command,
    /// As JSON.
    pub json: bool,
}

/// Reads the command line.
pub fn parse(mut parser: lexopt::Parser) -> Result<Arguments, Failure> {
    let (mut json, mut help, mut name) = (false, false, None);
    let mut words: Vec<String> = Vec::new();
    let wrong = |error: lexopt::Error| Failure::usage(error.to_string());
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => help = true,
            Arg::Long("json") => json = true,
            Arg::Long("name") => {
                let value = parser.value().map_err(wrong)?;
                name = Some(value.to_string_lossy().into_owned());
            }
            Arg::Value(word) => words.push(word.to_string_lossy().into_owned()),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = match words.as_slice() {
        _ if help => Command::Help,
        [] => return Err(Failure::usage("name a command")),
        ["help"] => Command::Help,
        ["list"] => Command::List { kind: None, name: name.take() },
        ["list", kind] => Command::List { kind: Some(known(kind)?), name: name.take() },
        ["show", resource] => {
            let (kind, which) = one(resource)?;
            Command::Show { kind, which }
        }
        ["set", resource, attribute, value] => {
            let (kind, which) = one(resource)?;
            Command::Set { kind, which, attribute: (*attribute).into(), value: (*value).into() }
        }
        ["pools"] => Command::Pools,
        ["limit", kind, bytes] => Command::Limit { kind: known(kind)?, bytes: size(bytes)? },
        ["policy"] => Command::Policy { new: None },
        ["policy", new] => Command::Policy { new: Some((*new).into()) },
        ["drop"] => Command::Drop { kind: None },
        ["drop", kind] => Command::Drop { kind: Some(known(kind)?) },
        ["frames"] => Command::Frames,
        [first, ..] => return Err(Failure::usage(misused(first))),
    };
    if name.is_some() && !help {
        return Err(Failure::usage("--name is an option of list"));
    }
    Ok(Arguments { command, json })
}

fn misused(word: &str) -> String {
    match word {
        "show" => "write it as: resource show KIND/SERIAL".into(),
        "set" => "write it as: resource set KIND/SERIAL ATTRIBUTE VALUE".into(),
        "limit" => "write it as: resource limit KIND BYTES".into(),
        "list" | "pools" | "policy" | "drop" | "frames" | "help" => {
            format!("{word}: there are too many arguments")
        }
        _ => format!("there is no command {word}"),
    }
}

fn known(kind: &str) -> Result<String, Failure> {
    if KINDS.contains(&kind) {
        return Ok(kind.into());
    }
    Err(Failure::usage(format!("there is no kind {kind}; the kinds are {}", KINDS.join(", "))))
}

/// `KIND/SERIAL`. A name may have slashes of its own.
fn one(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('/') {
        Some((kind, which)) if !which.is_empty() => Ok((known(kind)?, which.into())),
        _ => Err(Failure::usage(format!("{text}: write it as KIND/SERIAL, process/1 for example"))),
    }
}

/// `4096`, `64K`, `16M`, `1G`.
fn size(text: &str) -> Result<u64, Failure> {
    let wrong = || Failure::usage(format!("{text}: write it as 4096, 64K, 16M or 1G"));
    let (number, scale) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u64),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, String> {
        parse(lexopt::Parser::from_args(words)).map_err(|failure| failure.text)
    }

    #[test]
    fn commands_are_understood() {
        let list = Command::List { kind: Some("space".into()), name: Some("sh".into()) };
        let wanted = parsed(&["list", "space", "--name", "sh", "--json"]);
        assert_eq!(wanted, Ok(Arguments { command: list, json: true }));
        let show = Command::Show { kind: "plate".into(), which: "/bin/sh".into() };
        assert_eq!(parsed(&["show", "plate//bin/sh"]).unwrap().command, show);
        let limit = Command::Limit { kind: "region".into(), bytes: 16 << 20 };
        assert_eq!(parsed(&["limit", "region", "16M"]).unwrap().command, limit);
        assert_eq!(parsed(&["drop", "--help"]).unwrap().command, Command::Help);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            &["lst"][..],
            &[],
            &["list", "bicycle"],
            &["show", "process"],
            &["show", "process/"],
            &["pools", "process"],
            &["limit", "space", "much"],
            &["limit", "space", "99999999999999999999"],
            &["limit", "space", "18014398509481984K"],
            &["pools", "--name", "x"],
            &["--colour"],
            &["set", "process/1", "name"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
