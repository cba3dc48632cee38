//! The guest's side of `./hayate cp`: `hayate-copy out PATH follow|link` writes a file or a folder
//! to standard output, `hayate-copy in PATH NAME whole|contents plain|owners` takes one from
//! standard input. It is there in machines that stay.

use hayate_tree_copy::{Target, pack, unpack};
use std::ffi::OsString;
use std::io::{BufWriter, Error, ErrorKind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let told = |text: &str| eprintln!("{text}");
    let result = match &arguments[..] {
        [word, path, link] if word == "out" => {
            let out = BufWriter::with_capacity(64 << 10, std::io::stdout());
            pack(path.as_ref(), link == "follow", out, told)
        }
        [word, path, name, contents, owners] if word == "in" => {
            let target = Target {
                path: path.into(),
                name: name.into(),
                contents: contents == "contents",
                keep_set_id: true,
                keep_owners: owners == "owners",
            };
            unpack(std::io::stdin().lock(), &target, told)
        }
        _ => Err(Error::new(ErrorKind::InvalidInput, "only ./hayate cp starts this program")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
