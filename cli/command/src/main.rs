//! The program behind `./hayate`: it reads the command line, hands the request on, and turns the
//! result into an exit status.
//!
//! [`arguments`] lists the commands. `run`, `start` and its like, `test`, `image` and `build` are
//! in `cli/`; `compare`, `experiment` and `explain` are in `measure/tools`.
#![forbid(unsafe_code)]

mod arguments;

use anyhow::Result;
use arguments::{Arguments, Request};
use hayate_cli::arguments::ImageRequest;
use hayate_cli::{
    compile, containerd, containers, disks, failure, guest, image, machines, off2f, run, snapshots,
    test,
};
use hayate_measure_tools::{compare, experiment, explain};
use std::process::ExitCode;

fn main() -> ExitCode {
    guest::terminal::restore_on_panic();
    let arguments = match Arguments::of_process() {
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
        Request::Start(_) => return machines::start::start(),
        Request::Keep(start) => return machines::supervisor::keep(&start),
        Request::Exec(exec) => return machines::exec::exec(&exec),
        Request::Ps(ps) => return machines::manage::ps(&ps),
        Request::Logs(logs) => return machines::journal::logs(&logs),
        Request::Cp(copy) => return machines::copy::copy(&copy),
        Request::Stop(stop) => return machines::manage::stop(&stop),
        Request::Rm(remove) => return machines::manage::remove(&remove),
        Request::Snapshot(snapshot) => return snapshots::handle(&snapshot.request),
        Request::Disk(disk) => return disks::handle(&disk.request),
        Request::Containerd(request) => containerd::handle(&request.request)?,
        Request::Test(test) => return test::test(&test),
        Request::Compare(compare) => return compare::compare(&compare),
        Request::Experiment(experiment) => return experiment::experiment(&experiment),
        Request::Explain(explain) => return explain::explain(&explain),
        Request::Off2f(request) => return off2f::handle(&request),
        Request::Image(image) => match image.request {
            ImageRequest::Build { rootfs, recipe, off2f } => {
                let recipe = recipe.as_deref().and_then(image::default::recipe);
                for path in image::build(rootfs.as_deref(), recipe, off2f.as_deref())? {
                    println!("{}", path.display());
                }
            }
            ImageRequest::Path => println!("{}", image::default::DEFAULT.get()?.display()),
            ImageRequest::List => {
                containers::manage::list()?;
                image::list()?;
            }
            ImageRequest::Pull { images } => containers::manage::pull(&images)?,
            ImageRequest::Rm { images } => containers::manage::remove(&images)?,
            ImageRequest::Prune { all } => containers::manage::prune(all)?,
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
