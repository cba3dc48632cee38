//! Perl with a script that it has compiled: `template make NAME --perl-script=FILE`.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{AT_ONCE, Done, Failure, PLACE, make as run};

/// The clock of files may show the same time for two changes that are closer than this.
const GRAIN: Duration = Duration::from_millis(20);
/// The longest first line of a script that is looked at (`BINPRM_BUF_SIZE`).
const LINE: u64 = 256;
const PERL: &str = "/usr/bin/perl";

/// The script of `--perl-script=FILE` or `--perl-script FILE`.
pub fn script_of(command: &[OsString]) -> Option<&OsStr> {
    const OPTION: &[u8] = b"--perl-script";
    match command {
        [option, file] if option.as_bytes() == OPTION => Some(file),
        [option] => {
            let file = option.as_bytes().strip_prefix(OPTION)?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(file))
        }
        _ => None,
    }
}

/// Makes the template.
pub fn make(name: &OsString, file: &OsStr) -> Done {
    let shown = file.to_string_lossy();
    let failed = |error: std::io::Error| Failure::new(format!("{shown}: {error}"));
    let bytes = file.as_bytes();
    if !bytes.starts_with(b"/") || bytes.iter().any(|&byte| byte < b' ' || byte == 0x7f) {
        return Err(Failure::new(format!(
            "{shown}: the path must be absolute, without line breaks"
        )));
    }
    let mut line = Vec::new();
    let opened = File::open(file).map_err(failed)?;
    BufReader::new(opened.take(LINE)).read_until(b'\n', &mut line).map_err(failed)?;
    let Interpreter { program, warns } =
        interpreter(&line).map_err(|why| Failure::new(format!("{shown}: {why}")))?;
    let stamp = settled(file).map_err(failed)?;
    let module = if warns { "-MHayate::Template=script,-w" } else { "-MHayate::Template=script" };
    let warning = warns.then_some("-w");
    let words = [program.as_str()].into_iter().chain(warning).chain(["-I", PLACE, module]);
    let mut command: Vec<OsString> = words.map(OsString::from).collect();
    command.push(file.to_owned());
    let before = since_epoch().saturating_sub(GRAIN).as_nanos().to_string();
    let [at_once] = AT_ONCE;
    let variables =
        [at_once, ("HAYATE_TEMPLATE_FILE", stamp.as_str()), ("HAYATE_TEMPLATE_TIME", &before)];
    run(name, &command, &variables)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The stamp of a file, once it is so old that a later change has another time: what the module
/// compares when the script is compiled.
fn settled(file: &OsStr) -> std::io::Result<String> {
    loop {
        let found = std::fs::metadata(file)?;
        let age = since_epoch().as_nanos() as i128 - changed(&found);
        if age < 0 || age > GRAIN.as_nanos() as i128 {
            return Ok(format!("{} {} {}", changed(&found), found.ino(), found.size()));
        }
        thread::sleep(GRAIN);
    }
}

/// The time of the last change, in nanoseconds since 1970.
fn changed(found: &Metadata) -> i128 {
    i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
}

/// The interpreter that the first line of a script names.
#[derive(Debug, PartialEq, Eq)]
struct Interpreter {
    program: String,
    /// `-w`
    warns: bool,
}

/// Reads the first line of a script. The error says why it cannot be compiled before.
fn interpreter(line: &[u8]) -> Result<Interpreter, &'static str> {
    let text = String::from_utf8_lossy(line);
    let Some(rest) = text.strip_prefix("#!") else {
        return Ok(Interpreter { program: PERL.to_owned(), warns: false });
    };
    let mut words = rest.split_whitespace();
    let mut program = words.next().unwrap_or_default();
    if program.ends_with("/env") {
        program = match words.next() {
            Some("perl") => PERL,
            _ => return Err("its first line starts no /usr/bin/perl"),
        };
    }
    let is_perl = program.rsplit('/').next().is_some_and(|last| last.starts_with("perl"));
    if !is_perl {
        return Err("its first line starts no Perl");
    }
    let warns = match (words.next(), words.next()) {
        (None, _) => false,
        (Some("-w"), None) => true,
        _ => return Err("of the options of Perl its first line may have -w alone"),
    };
    Ok(Interpreter { program: program.to_owned(), warns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_read() {
        let is = |line: &str, program: &str, warns| {
            let read = interpreter(line.as_bytes());
            assert_eq!(read, Ok(Interpreter { program: program.to_owned(), warns }), "{line}");
        };
        is("", PERL, false);
        is("use strict;\n", PERL, false);
        is("#!/usr/bin/perl\n", PERL, false);
        is("#! /usr/bin/perl -w\n", PERL, true);
        is("#!/usr/bin/env perl\n", PERL, false);
        is("#!/opt/bin/perl5.36\n", "/opt/bin/perl5.36", false);
        for line in [
            "#!",
            "#!/bin/sh",
            "#!/usr/bin/perl -T",
            "#!/usr/bin/perl -w -l",
            "#!/usr/bin/env -S perl",
        ] {
            assert!(interpreter(line.as_bytes()).is_err(), "{line}");
        }
        assert!(interpreter(b"#!/usr/bin/\xff\xfe").is_err());
    }

    #[test]
    fn the_script_is_named_in_two_ways() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            script_of(&words).map(|file| file.to_owned())
        };
        assert_eq!(of(&["--perl-script=/a=b"]), Some("/a=b".into()));
        assert_eq!(of(&["--perl-script", "/a"]), Some("/a".into()));
        assert_eq!(of(&["--perl-script"]), None);
        assert_eq!(of(&["--perl-scripts=/a"]), None);
        assert_eq!(of(&["--perl=/a"]), None);
    }
}
