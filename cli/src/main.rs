//! The host command of Hayate: build, image, run, test.
//!
//! `./hayate`, the script at the root of the project, makes sure that tools and this program are
//! installed and up to date, and passes its arguments on unchanged. All decisions are made here:
//! what to build, which image, which machine, how its streams are connected to the host's. Modules:
//! [`arguments`] is the command line, [`run`] one program in one machine, [`guest`] the machine and
//! its session, [`image`] root file systems, [`off2f`] executables in two files, [`test`] the
//! tests, [`compare`] measurements compared with Linux, [`explain`] the account of a start,
//! [`experiment`] the experiments of `experiments/`.
//!
//! Errors are one line on standard error that says what to do next; statuses are in [`failure`].
#![forbid(unsafe_code)]

mod arguments;
mod compare;
mod compile;
mod cpio;
mod experiment;
mod explain;
mod failure;
mod guest;
mod image;
mod off2f;
mod place;
mod run;
mod step;
mod test;
mod tool;

use anyhow::Result;
use arguments::{Arguments, ImageRequest, Request};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    guest::terminal::restore_on_panic();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(told) => return tell(&told),
    };
    let result = handle(arguments.command);
    guest::terminal::restore();
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("hayate: {error:#}");
            ExitCode::from(failure::status(&error))
        }
    }
}

/// Prints a requested help, or what is wrong with the command line.
fn tell(told: &clap::Error) -> ExitCode {
    let status = u8::try_from(told.exit_code()).unwrap_or(failure::USAGE);
    match told.print() {
        // A reader that closed the pipe has read enough.
        Err(error) if status == 0 && error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("hayate: cannot write standard output: {error}");
            ExitCode::from(failure::FAULT)
        }
        _ => ExitCode::from(status),
    }
}

fn handle(request: Request) -> Result<u8> {
    match request {
        Request::Run(run) => return run::run(&run),
        Request::Test(test) => return test::test(&test),
        Request::Compare(compare) => return compare::compare(&compare),
        Request::Experiment(experiment) => return experiment::experiment(&experiment),
        Request::Explain(explain) => return explain::explain(&explain),
        Request::Off2f(request) => return off2f::handle(&request),
        Request::Image(image) => match image.request {
            ImageRequest::Build { rootfs, off2f } => {
                for path in image::build(rootfs.as_deref(), off2f.as_deref())? {
                    println!("{}", path.display());
                }
            }
            ImageRequest::Path => println!("{}", image::default::DEFAULT.get()?.display()),
            ImageRequest::List => image::list()?,
        },
        Request::Build(build) => {
            println!("{}", compile::kernel(build.profile)?.display());
            println!("{}", compile::init()?.display());
            for program in compile::programs()? {
                println!("{}", program.display());
            }
        }
        Request::Setup => println!("hayate: everything that is needed is installed"),
    }
    Ok(0)
}
