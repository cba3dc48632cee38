//! `off2f`: converts executables to two files and back, in the guest.
//!
//! The kernel presents a converted file as the original executable, so most of this reads and
//! writes ordinary files. The header is read through an extended attribute ([`ATTRIBUTE`]), and
//! texts are stored through `/proc/hayate/nvm` (docs/off2f.md).
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use hayate_off2f::{Header, Identity, MAGIC, MARK, Options, PAGE, StorePlace, convert};
use hayate_off2f_tool::{
    ATTRIBUTE, describe, description, memory, name, phase, replace, replacement,
};
use lexopt::Arg;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Converts executables into two files each, whose text runs in place, and back.

Usage: off2f [--json] COMMAND ...

Commands:
  convert [--keep-text] FILE...  put the text on non-volatile memory (root); with --keep-text the
                                 file keeps a copy of it, to start from where the text is missing
  restore FILE...                make the original again, byte for byte; the text stays on the
                                 memory until `nvm rm`
  info FILE...                   print what the header contains, and where the text is
  verify FILE...                 read text and file, and compare both with their hashes (root)
  count [--] PROGRAM ARG...      run a program, and count its page faults and reads from storage

Examples:
  off2f count --json -- gcc -c hello.c
  off2f convert /usr/bin/python3.11
  off2f info /usr/bin/python3.11 --json

Exit status: 0 done; 1 a file is damaged, or the command failed for it; 2 the command line is wrong
";

mod count;

fn main() -> ExitCode {
    let arguments = match parse(lexopt::Parser::from_env()) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(text) => {
            eprintln!("off2f: {text}\n`off2f --help` lists the commands");
            return ExitCode::from(2);
        }
    };
    if arguments.command == Command::Count {
        return count::count(&arguments.files, arguments.json);
    }
    let (mut said, mut all, mut status) = (String::new(), Vec::new(), ExitCode::SUCCESS);
    for file in &arguments.files {
        let file = Path::new(file);
        match arguments.command.run(file) {
            Ok((text, value)) => {
                said += &format!("{}: {text}\n", file.display());
                all.push(json!({ "file": file.display().to_string(), "found": value }));
            }
            Err(error) => {
                eprintln!("off2f: {}: {error:#}", file.display());
                let problem = format!("{error:#}");
                all.push(json!({ "file": file.display().to_string(), "problem": problem }));
                status = ExitCode::FAILURE;
            }
        }
    }
    let output = if arguments.json { format!("{:#}\n", Value::Array(all)) } else { said };
    // The reader may have closed the pipe.
    let _ = std::io::stdout().lock().write_all(output.as_bytes());
    status
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Convert { keep_text: bool },
    Restore,
    Info,
    Verify,
    Count,
}

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    command: Command,
    files: Vec<OsString>,
    json: bool,
}

/// Parses the command line; `None`: the help was requested.
fn parse(mut parser: lexopt::Parser) -> Result<Option<Arguments>, String> {
    let (mut json, mut help, mut keep_text) = (false, false, false);
    let mut words: Vec<OsString> = Vec::new();
    let wrong = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => help = true,
            Arg::Long("json") => json = true,
            Arg::Long("keep-text") => keep_text = true,
            // The program to be counted has options of its own.
            Arg::Value(word) if words.first().is_some_and(|first| first == "count") => {
                words.push(word);
                words.extend(parser.raw_args().map_err(wrong)?);
            }
            Arg::Value(word) => words.push(word),
            other => return Err(wrong(other.unexpected())),
        }
    }
    let mut words = words.into_iter();
    let word = words.next().unwrap_or_default();
    if help || word == "help" {
        return Ok(None);
    }
    let files: Vec<OsString> = words.collect();
    let command = match word.to_str().unwrap_or_default() {
        "convert" => Command::Convert { keep_text },
        "restore" => Command::Restore,
        "info" => Command::Info,
        "verify" => Command::Verify,
        "count" => Command::Count,
        "" => return Err("name a command".into()),
        other => return Err(format!("there is no command {other}")),
    };
    if keep_text && !matches!(command, Command::Convert { .. }) {
        return Err("--keep-text is an option of convert".into());
    }
    if files.is_empty() {
        return Err("name a file, or the program to count".into());
    }
    Ok(Some(Arguments { command, files, json }))
}

impl Command {
    /// Processes one file; returns the report, for people and as JSON.
    fn run(self, file: &Path) -> Result<(String, Value)> {
        match self {
            Command::Convert { keep_text } => convert_file(file, Options { keep_text }),
            Command::Restore => restore(file),
            Command::Info => info(file),
            Command::Verify => verify(file),
            Command::Count => bail!("count starts a program, and takes no files"),
        }
    }
}

/// Returns the header of a converted file: from the kernel, or from the content of a file without
/// the mark.
fn header(file: &Path) -> Result<Option<Header>> {
    let mut page = vec![0; PAGE];
    let length = match rustix::fs::getxattr(file, ATTRIBUTE, &mut page[..]) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {
            let mut file = std::fs::File::open(file)?;
            let mut length = 0;
            while length < PAGE {
                match file.read(&mut page[length..])? {
                    0 => break,
                    read => length += read,
                }
            }
            length
        }
        Err(error) => return Err(error).context("cannot read it"),
    };
    if !page[..length].starts_with(&MAGIC) {
        return Ok(None);
    }
    Ok(Some(Header::parse(&page[..length])?))
}

fn converted(file: &Path) -> Result<Header> {
    header(file)?.context("it is not converted")
}

fn is_marked(file: &Path) -> Result<bool> {
    Ok(file.metadata()?.mode() & MARK != 0)
}

fn convert_file(file: &Path, options: Options) -> Result<(String, Value)> {
    ensure!(rustix::process::geteuid().is_root(), "only root may convert");
    ensure!(header(file)?.is_none(), "it is already converted");
    let original = std::fs::read(file).context("cannot read it")?;
    let mut made = convert(&original, options)?;
    let mut text = tempfile::NamedTempFile::new().context("cannot write the text to /tmp")?;
    text.write_all(&made.text).context("cannot write the text to /tmp")?;
    memory::put(phase(&made.header), &name(file), text.path())?;
    drop(text);
    let areas = memory::areas()?;
    let (store, found) = memory::find(&areas, &made.header.text)
        .context("the text that was stored is not on the memory")?;
    if let Some(id) = bytes_of(&store.id) {
        made.set_place(StorePlace { store: id, page: found.page });
    }
    let mode = file.metadata()?.mode();
    let new = replacement(file, &made.file, mode | MARK)?;
    // The kernel must present the original content, or the file stays as it was.
    let shown = std::fs::read(new.path()).context("the kernel cannot read the converted file")?;
    ensure!(
        shown == original,
        "the converted file would differ from the original; nothing was changed"
    );
    new.finish()?;
    let (text, rest) = (made.text.len() / PAGE, made.file.len() / PAGE);
    let said = format!(
        "{text} pages of text are on non-volatile memory now, {rest} pages stay in the file"
    );
    Ok((said, description(&made.header, true)))
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<[u8; 16]> {
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}

fn restore(file: &Path) -> Result<(String, Value)> {
    let header = converted(file)?;
    ensure!(is_marked(file)?, "it is not marked; after chmod +t the kernel shows the original");
    let original = std::fs::read(file).context("the kernel cannot show the original")?;
    ensure!(Identity::of(&original) == header.original, "its bytes differ from the original's");
    replace(file, &original, file.metadata()?.mode() & !MARK)?;
    Ok((format!("restored, {} bytes", original.len()), json!({ "bytes": original.len() })))
}

fn info(file: &Path) -> Result<(String, Value)> {
    let header = converted(file)?;
    let (areas, marked) = (memory::areas()?, is_marked(file)?);
    let (mut said, mut value) = (describe(&header, marked), description(&header, marked));
    match memory::find(&areas, &header.text) {
        Some((store, text)) => {
            said += &format!("\n  now       at page {} of store {}", text.page, store.id);
            value["now"] = json!({ "store": store.id, "page": text.page, "users": text.users });
        }
        None => said += "\n  now       no memory of this machine has its text",
    }
    Ok((said, value))
}

fn verify(file: &Path) -> Result<(String, Value)> {
    let header = converted(file)?;
    if memory::find(&memory::areas()?, &header.text).is_some() {
        memory::verify(&header.text).context("its text")?;
    } else if header.copy.is_none() {
        bail!("no memory of this machine has its text {:.16}", header.text);
    }
    ensure!(is_marked(file)?, "it is not marked; the kernel looks at it only after chmod +t");
    let shown = std::fs::read(file).context("the kernel cannot show the original")?;
    ensure!(Identity::of(&shown) == header.original, "its bytes differ from the original's");
    let value = json!({ "bytes": header.size, "text": header.text.to_string() });
    Ok((format!("good: {} bytes, text {:.16}", header.size, header.text), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Arguments>, String> {
        parse(lexopt::Parser::from_args(words))
    }

    #[test]
    fn commands_are_understood() {
        let command = Command::Convert { keep_text: true };
        let arguments = Arguments { command, files: vec!["a".into()], json: true };
        assert_eq!(parsed(&["convert", "--keep-text", "a", "--json"]), Ok(Some(arguments)));
        assert_eq!(parsed(&["convert", "--help"]), Ok(None));
        for words in [&[][..], &["convert"], &["info", "--keep-text", "a"], &["turn", "a"]] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn identifiers_of_stores_are_read() {
        assert_eq!(bytes_of("000102030405060708090a0b0c0d0eff").unwrap()[15], 0xff);
        assert_eq!(bytes_of("nonsense"), None);
    }
}
