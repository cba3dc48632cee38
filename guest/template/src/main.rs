//! `template`: makes templates of programs, starts programs from them, and binds paths to them
//! (docs/templates.md).
#![forbid(unsafe_code)]

mod perl;
mod shown;

use hayate_guest::template::{bind, close_all_but_streams, remove, start};
use std::ffi::{CString, OsStr, OsString};
use std::io::Error;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};

use shown::{LIST, Shown};

const HELP: &str = "\
Makes templates: programs that are ready, kept, where later starts begin.

Usage: template make NAME [--] CMD...    run CMD, which says that it is ready, and keep it
       template make NAME --python[=MODULE,...]   Python with these modules loaded
       template make NAME --perl[=MODULE,...]     the same with Perl
       template make NAME --perl-script=FILE      Perl that has compiled this script; no start
                                                  uses it once FILE has changed
       template prepare OPTION...        make a template for each --python, --perl and
                                         --perl-script, bind its path, and save it (root)
       template start NAME [--] ARG...   start a program from it, with these arguments
       template bind PATH NAME           every exec of PATH, a program or the script of
                                         --perl-script, by this user that the template serves
                                         starts from it; any other as always
       template unbind PATH
       template list                     your templates (root: everybody's)
       template show NAME                one of them, and which of its files changed since
       template rm [--user UID] NAME...  remove templates, and what is bound to them
       template save [--user UID] NAME...   root: write templates, and what is bound to them, to
                                         non-volatile memory (--nvm): the next machine with it
                                         has them at boot

CMD says that it is ready by a system call of Hayate (hayate.h, the crate hayate-guest), and finds
the template's name in the environment variable HAYATE_TEMPLATE. A template serves its maker's user
alone. Variables that decide how an interpreter begins (LANG, HOME, PYTHON*, PERL*) must be the same
for a start of a bound path as they were here.

Examples:
  template make py --python=json,re,datetime
  template start py -- script.py one two
  template bind /usr/bin/python3 py; python3 script.py
  env -i /usr/local/bin/template make cgi --perl=POSIX
  template bind /usr/bin/perl cgi
  template make hits --perl-script=/usr/lib/cgi-bin/hits.pl
  template bind /usr/lib/cgi-bin/hits.pl hits
  template show py; template rm py
  template save py; nvm list

Exit status: 0 done; 1 it failed; 2 the command line is wrong; of start, that of the program
";

/// An exit status and the message.
struct Failure(u8, String);

impl Failure {
    fn new(text: impl Into<String>) -> Failure {
        Failure(1, text.into())
    }

    fn usage(text: impl Into<String>) -> Failure {
        Failure(2, text.into())
    }
}

type Done = Result<ExitCode, Failure>;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    let done = match (command.to_str().unwrap_or_default(), rest.as_slice()) {
        ("make", [name, command @ ..]) => match of_interpreter(command) {
            Some(command) => make(name, &command, &AT_ONCE),
            None => match perl::script_of(command) {
                Some(file) => perl::make(name, file),
                None => make(name, behind_dashes(command), &[]),
            },
        },
        ("prepare", options) if !options.is_empty() => prepared(options),
        ("start", [name, arguments @ ..]) => run(name, behind_dashes(arguments)),
        ("bind", [path, name]) => bound(path, Some(name)),
        ("unbind", [path]) => bound(path, None),
        ("list", []) => list(),
        ("show", [name]) => show(name),
        ("rm", [option, user, names @ ..]) if option == "--user" && !names.is_empty() => {
            number(user).and_then(|user| removed(names, Some(user)))
        }
        ("rm", names) if !names.is_empty() => removed(names, None),
        ("save", [option, user, names @ ..]) if option == "--user" && !names.is_empty() => {
            number(user).and_then(|user| saved(names, user))
        }
        ("save", names) if !names.is_empty() => saved(names, 0),
        ("help" | "--help" | "-h", _) => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        ("", _) => Err(Failure::usage("name a command")),
        (
            word @ ("make" | "prepare" | "start" | "bind" | "unbind" | "list" | "show" | "rm"
            | "save"),
            _,
        ) => Err(Failure::usage(format!("{word}: the arguments are wrong"))),
        (word, _) => Err(Failure::usage(format!("there is no command {word}"))),
    };
    done.unwrap_or_else(|Failure(status, text)| {
        eprintln!("template: {}", text.trim_end());
        if status == 2 {
            eprintln!("`template --help` lists the commands");
        }
        ExitCode::from(status)
    })
}

fn behind_dashes(arguments: &[OsString]) -> &[OsString] {
    match arguments {
        [first, rest @ ..] if first == "--" => rest,
        all => all,
    }
}

/// Where the modules of Perl and Python are.
const PLACE: &str = "/run/hayate/lib";

/// The dynamic linker looks all symbols up at once, so that no start looks for any (ld.so(8)).
const AT_ONCE: [(&str, &str); 1] = [("LD_BIND_NOW", "1")];

/// The command that `--python=MODULE,...` and `--perl=MODULE,...` stand for.
fn of_interpreter(command: &[OsString]) -> Option<Vec<OsString>> {
    let [option] = command else { return None };
    let option = option.to_str()?;
    let (name, modules) = option.split_once('=').unwrap_or((option, ""));
    let words: Vec<String> = match name {
        "--python" => vec![
            "/usr/bin/python3".into(),
            format!("{PLACE}/hayate_template.py"),
            format!("--preload={modules}"),
        ],
        "--perl" => {
            let modules = modules.split(',').filter(|module| !module.is_empty());
            let ready = "Hayate::Template::ready(@ARGV)";
            ["/usr/bin/perl", "-I", PLACE, "-MHayate::Template", "-e", ready]
                .into_iter()
                .chain(modules)
                .map(String::from)
                .collect()
        }
        _ => return None,
    };
    Some(words.into_iter().map(OsString::from).collect())
}

fn text(word: &OsString) -> Result<CString, Failure> {
    CString::new(word.as_bytes()).map_err(|_| Failure::usage("an argument has a zero byte"))
}

/// What an error means, and what to do about it.
fn explained(error: &Error, name: &OsString) -> String {
    let name = name.to_string_lossy();
    // Numbers of errno(3).
    match error.raw_os_error() {
        Some(1) => format!("{name} is of other rights than yours, or you are in supervisor mode"),
        Some(2) => format!("there is no {name}; `template list` names what there is"),
        Some(12) => format!("{name}: memory is exhausted, or beyond a limit (ulimit -a)"),
        Some(22) => format!(
            "{name}: the path must be absolute, and that of the template's program or script"
        ),
        Some(116) => format!("{name}: its script has changed; make it again"),
        Some(28) => "there are too many bound paths; `template unbind` one".to_owned(),
        Some(38) => "this kernel has no templates; run the command in Hayate".to_owned(),
        Some(95) => format!("{name} says that it serves no starts by a path; use template start"),
        _ => format!("{name}: {error}"),
    }
}

/// Runs a command, with these variables as well, that is to say that it is ready.
fn make(name: &OsString, command: &[OsString], variables: &[(&str, &str)]) -> Done {
    let [program, arguments @ ..] = command else {
        return Err(Failure::usage("make: name a program behind the template's name"));
    };
    let before = Shown::find(name)?.map(|shown| shown.made);
    // Descriptors that it inherited would keep the program from being a template.
    close_all_but_streams().map_err(|error| Failure::new(explained(&error, name)))?;
    let status = Command::new(program)
        .args(arguments)
        .env("HAYATE_TEMPLATE", name)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .status()
        .map_err(|error| Failure::new(format!("{}: {error}", program.to_string_lossy())))?;
    let is_new = Shown::find(name)?.is_some_and(|shown| Some(shown.made) != before);
    if is_new {
        return Ok(ExitCode::SUCCESS);
    }
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        _ => "ended".to_owned(),
    };
    Err(Failure::new(format!(
        "{} {ended} without saying that it is ready; `template --help` says how it does",
        program.to_string_lossy()
    )))
}

fn run(name: &OsString, arguments: &[OsString]) -> Done {
    let mut all = vec![text(name)?];
    for argument in arguments {
        all.push(text(argument)?);
    }
    let mut environment = Vec::new();
    for (key, value) in std::env::vars_os() {
        let mut variable = key.into_vec();
        variable.push(b'=');
        variable.extend(value.into_vec());
        environment.push(text(&OsString::from_vec(variable))?);
    }
    let error = start(&text(name)?, &all, &environment);
    Err(Failure(126, explained(&error, name)))
}

fn bound(path: &OsString, name: Option<&OsString>) -> Done {
    let template = name.map(text).transpose()?;
    match bind(&text(path)?, template.as_deref()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.raw_os_error() == Some(22) => {
            Err(Failure::new(explained(&error, path)))
        }
        Err(error) => Err(Failure::new(explained(&error, name.unwrap_or(path)))),
    }
}

fn removed(names: &[OsString], user: Option<u32>) -> Done {
    let mut status = ExitCode::SUCCESS;
    for name in names {
        if let Err(error) = remove(&text(name)?, user) {
            eprintln!("template: {}", explained(&error, name));
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Makes, binds and saves a template for each option: `./hayate run --template` asks for it.
fn prepared(options: &[OsString]) -> Done {
    for option in options {
        let words = std::slice::from_ref(option);
        let (name, path, done) = if let Some(file) = perl::script_of(words) {
            let name = name_of(file);
            let done = perl::make(&name, file)?;
            (name, file.to_owned(), done)
        } else {
            let (name, path) = match option.to_str().map(|text| text.split('=').next()) {
                Some(Some("--python")) => ("python", "/usr/bin/python3"),
                Some(Some("--perl")) => ("perl", "/usr/bin/perl"),
                _ => return Err(Failure::usage("prepare takes --python, --perl, --perl-script")),
            };
            let command = of_interpreter(words).ok_or_else(|| Failure::usage("prepare"))?;
            let name = OsString::from(name);
            let done = make(&name, &command, &AT_ONCE)?;
            (name, path.into(), done)
        };
        if done != ExitCode::SUCCESS {
            return Ok(done);
        }
        bound(&path, Some(&name))?;
        let done = saved(&[name], 0)?;
        if done != ExitCode::SUCCESS {
            return Ok(done);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of the template of a script: its path, as far as a name may have it.
fn name_of(script: &OsStr) -> OsString {
    const MOST: usize = 64;
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let bytes = script.as_bytes();
    let end = bytes.get(bytes.len().saturating_sub(MOST - 1)..).unwrap_or_default();
    let name = end.iter().map(|byte| if fits(byte) { *byte } else { b'_' });
    OsString::from_vec(name.collect())
}

/// The number of a user.
fn number(user: &OsString) -> Result<u32, Failure> {
    let number = user.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::usage("--user takes the number of a user, 0 for root"))
}

/// Writes templates of a user to non-volatile memory.
fn saved(names: &[OsString], user: u32) -> Done {
    const STORE: &str = "/proc/hayate/nvm";
    let mut status = ExitCode::SUCCESS;
    for name in names {
        let name = name.to_string_lossy();
        if let Err(error) = std::fs::write(STORE, format!("template {user} {name}")) {
            eprintln!("template: {}", not_saved(&error, &name));
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// What an error of saving means, and what to do about it.
fn not_saved(error: &Error, name: &str) -> String {
    match error.raw_os_error() {
        Some(1 | 13) => "only root saves templates".to_owned(),
        Some(2) => format!("there is no {name}; `template list` names what there is"),
        Some(17) => format!("{name} came from non-volatile memory and is there"),
        Some(18) => format!("{name} was made with another root directory than the machine's"),
        Some(27) => format!("{name} is made of too many files, or of a script of over 1 MiB"),
        Some(28) => {
            "the non-volatile memory is full; `nvm usage` shows it, `nvm rm` makes room".to_owned()
        }
        Some(95) => format!("{name} maps something that has no path"),
        Some(123) => "this machine has no non-volatile memory; ./hayate run --nvm FILE".to_owned(),
        _ => format!("{name}: {error}"),
    }
}

fn list() -> Done {
    let mut lines = String::from(LIST);
    for shown in Shown::all()? {
        lines.push_str(&shown.line());
    }
    print!("{lines}");
    Ok(ExitCode::SUCCESS)
}

fn show(name: &OsString) -> Done {
    match Shown::find(name)? {
        Some(shown) => print!("{}", shown.page()),
        None => return Err(Failure::new(explained(&Error::from_raw_os_error(2), name))),
    }
    Ok(ExitCode::SUCCESS)
}
