//! `nvm`: the texts on non-volatile memory, listed, stored, removed, verified.
//!
//! A front end of `/proc/hayate/nvm` (docs/off2f.md), which it reads and writes as any program
//! could.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use hayate_off2f::{Digest, PAGE};
use hayate_off2f_tool::memory::{self, Area, Text};
use hayate_off2f_tool::name;
use lexopt::Arg;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Lists, stores, removes and checks the texts of programs on non-volatile memory.

Usage: nvm [--json] COMMAND

Commands:
  list                       the texts: identity, size, page, open files that use it, name
  usage                      the areas of memory, and how full each is
  put [--name NAME] FILE...  store the content of files as texts (root)
  rm TEXT...                 remove texts that nobody uses (root)
  verify [TEXT...]           read texts, or all, and compare each with its identity (root)
  compact                    move texts together, so that the free pages are in one run (root)
  format                     make a store on each area that has none; what is there is lost (root)

TEXT is an identity, the beginning of one, or a name, where only one text has it.

Examples:
  nvm list
  nvm put --name words /usr/share/dict/words
  nvm rm words
  nvm verify && nvm usage --json

Exit status: 0 done; 1 a text is missing or damaged, or the command failed; 2 the command line is
wrong
";

fn main() -> ExitCode {
    let arguments = match parse(lexopt::Parser::from_env()) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("nvm: {text}\n`nvm --help` lists the commands");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok((text, good)) => {
            // The reader may have closed the pipe.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("nvm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    List,
    Usage,
    Put(Vec<OsString>),
    Remove(Vec<String>),
    Verify(Vec<String>),
    Compact,
    Format,
}

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    command: Command,
    name: Option<String>,
    json: bool,
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments, String> {
    let (mut json, mut help, mut name) = (false, false, None);
    let mut words: Vec<OsString> = Vec::new();
    let wrong = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => help = true,
            Arg::Long("json") => json = true,
            Arg::Long("name") => {
                name = Some(parser.value().map_err(wrong)?.to_string_lossy().into_owned());
            }
            Arg::Value(word) => words.push(word),
            other => return Err(wrong(other.unexpected())),
        }
    }
    if help {
        return Ok(Arguments { command: Command::Help, name: None, json });
    }
    let mut rest = words.into_iter();
    let command = rest.next().ok_or("name a command")?;
    let rest: Vec<OsString> = rest.collect();
    let texts = || rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = match (command.to_str().unwrap_or_default(), rest.len()) {
        ("help", _) => Command::Help,
        ("list", 0) => Command::List,
        ("usage", 0) => Command::Usage,
        ("put", 1..) => Command::Put(rest),
        ("rm", 1..) => Command::Remove(texts()),
        ("verify", _) => Command::Verify(texts()),
        ("compact", 0) => Command::Compact,
        ("format", 0) => Command::Format,
        ("list" | "usage" | "compact" | "format", _) => {
            return Err("there are too many arguments".into());
        }
        ("put", _) => return Err("put needs the name of a file".into()),
        ("rm", _) => return Err("rm needs the identity or the name of a text".into()),
        (other, _) => return Err(format!("there is no command {other}")),
    };
    match &command {
        Command::Put(files) if name.is_some() && files.len() > 1 => {
            Err("--name needs exactly one file".into())
        }
        Command::Put(_) => Ok(Arguments { command, name, json }),
        _ if name.is_some() => Err("--name is an option of put".into()),
        _ => Ok(Arguments { command, name, json }),
    }
}

/// Returns the text to print, and whether no fault was found.
fn run(arguments: &Arguments) -> Result<(String, bool)> {
    let json = arguments.json;
    let said = match &arguments.command {
        Command::Help => HELP.into(),
        Command::List => list(&memory::areas()?, json),
        Command::Usage => usage(&memory::areas()?, json),
        Command::Put(files) => put(files, arguments.name.as_deref(), json)?,
        Command::Remove(texts) => {
            let areas = memory::areas()?;
            for text in chosen(&areas, texts)? {
                memory::remove(&text.identity).with_context(|| shown(text))?;
            }
            String::new()
        }
        Command::Verify(texts) => return verify(texts, json),
        Command::Compact => memory::compact().map(|()| String::new())?,
        Command::Format => memory::format().map(|()| String::new())?,
    };
    Ok((said, true))
}

fn texts(areas: &[Area]) -> impl Iterator<Item = &Text> {
    areas.iter().filter_map(|area| area.store.as_ref()).flat_map(|store| &store.texts)
}

fn shown(text: &Text) -> String {
    format!("{:.16} {}", text.identity, text.name)
}

/// Returns the selected texts, each given by name, identity or the beginning of its identity.
fn chosen<'a>(areas: &'a [Area], wanted: &[String]) -> Result<Vec<&'a Text>> {
    let one = |wanted: &String| {
        let fits = |text: &&Text| {
            text.name == *wanted
                || (wanted.len() >= 4 && text.identity.to_string().starts_with(wanted.as_str()))
        };
        let found: Vec<&Text> = texts(areas).filter(fits).collect();
        match found.as_slice() {
            [text] => Ok(*text),
            [] => bail!("{wanted}: there is no such text; `nvm list` shows all"),
            _ => bail!("{wanted}: several texts have this name; give the identity"),
        }
    };
    wanted.iter().map(one).collect()
}

fn value(text: &Text) -> Value {
    json!({
        "identity": text.identity.to_string(),
        "kib": text.kib,
        "page": text.page,
        "large": text.large,
        "users": text.users,
        "name": text.name,
    })
}

fn list(areas: &[Area], json: bool) -> String {
    if json {
        return format!("{:#}\n", texts(areas).map(value).collect::<Value>());
    }
    let mut said =
        format!("{:16}  {:>10}  {:>8}  {:>5}  NAME\n", "IDENTITY", "SIZE", "PAGE", "USERS");
    for text in texts(areas) {
        let size = format!("{} KiB", text.kib);
        let (page, users) = (text.page, text.users);
        said +=
            &format!("{:.16}  {size:>10}  {page:>8}  {users:>5}  {}\n", text.identity, text.name);
    }
    said
}

fn usage(areas: &[Area], json: bool) -> String {
    if json {
        let all = areas.iter().map(|area| {
            json!({
                "kind": area.kind,
                "address": area.address,
                "kib": area.kib,
                "store": area.store.as_ref().map(|store| json!({
                    "id": store.id,
                    "texts": store.texts.len(),
                    "entries": store.entries,
                    "used-kib": store.used_kib,
                    "free-kib": store.free_kib,
                    "longest-kib": store.longest_kib,
                    "damaged": store.damaged,
                })),
            })
        });
        return format!("{:#}\n", all.collect::<Value>());
    }
    if areas.is_empty() {
        return "no non-volatile memory: start the machine with --nvm or --off2f\n".into();
    }
    let mut said = String::new();
    for area in areas {
        said += &format!("{} at {}, {} KiB: ", area.kind, area.address, area.kib);
        said += &match &area.store {
            None => "no store; `nvm format` makes one\n".to_string(),
            Some(store) => format!(
                "{} texts of {} at most, {} KiB used, {} KiB free, {} KiB of it in a row{}\n",
                store.texts.len(),
                store.entries,
                store.used_kib,
                store.free_kib,
                store.longest_kib,
                match store.damaged {
                    0 => String::new(),
                    damaged => format!(", {damaged} damaged entries left out"),
                }
            ),
        };
    }
    said
}

fn put(files: &[OsString], called: Option<&str>, json: bool) -> Result<String> {
    let mut said = String::new();
    let mut stored = Vec::new();
    for file in files {
        let file = Path::new(file);
        let (name, shown) = (name(file), file.display());
        let name = called.unwrap_or(&name);
        let path = file.canonicalize().with_context(|| shown.to_string())?;
        memory::put(None, name, &path).with_context(|| shown.to_string())?;
        let areas = memory::areas()?;
        let identity = identity(&path).with_context(|| shown.to_string())?;
        let (_, text) = memory::find(&areas, &identity)
            .with_context(|| format!("{shown}: it changed while it was stored"))?;
        said += &format!("{identity}  {}\n", text.name);
        stored.push(value(text));
    }
    Ok(if json { format!("{:#}\n", Value::Array(stored)) } else { said })
}

/// The identity of a file's content in whole pages.
fn identity(path: &Path) -> Result<hayate_off2f::Identity> {
    let mut file = std::fs::File::open(path)?;
    let (mut digest, mut size) = (Digest::new(), 0);
    let mut piece = vec![0; 64 * PAGE];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        size += read;
    }
    digest.update(&[0; PAGE][..size.next_multiple_of(PAGE) - size]);
    Ok(digest.finish())
}

fn verify(wanted: &[String], json: bool) -> Result<(String, bool)> {
    let areas = memory::areas()?;
    let chosen: Vec<&Text> =
        if wanted.is_empty() { texts(&areas).collect() } else { chosen(&areas, wanted)? };
    let (mut said, mut found, mut good) = (String::new(), Vec::new(), true);
    for text in chosen {
        let result = memory::verify(&text.identity);
        good &= result.is_ok();
        let problem = result.err().map(|error| format!("{error:#}"));
        said += &format!("{}: {}\n", shown(text), problem.as_deref().unwrap_or("good"));
        let mut value = value(text);
        value["problem"] = problem.into();
        found.push(value);
    }
    Ok((if json { format!("{:#}\n", Value::Array(found)) } else { said }, good))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, String> {
        parse(lexopt::Parser::from_args(words))
    }

    #[test]
    fn commands_are_understood() {
        let list = Arguments { command: Command::List, name: None, json: true };
        assert_eq!(parsed(&["list", "--json"]), Ok(list));
        let put = Command::Put(vec!["a".into()]);
        let put = Arguments { command: put, name: Some("n".into()), json: false };
        assert_eq!(parsed(&["put", "--name", "n", "a"]), Ok(put));
        assert_eq!(parsed(&["verify"]).unwrap().command, Command::Verify(Vec::new()));
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            &[][..],
            &["lst"],
            &["list", "x"],
            &["put"],
            &["rm"],
            &["put", "--name", "n", "a", "b"],
            &["rm", "--name", "n", "a"],
            &["--colour"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
