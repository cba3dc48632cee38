//! The host command of Hayate: build, image, run, test.
//!
//! `./hayate`, the script at the root of the project, makes sure that tools and the program in
//! `cli/command` are installed and up to date, and passes its arguments on unchanged. That program
//! reads the command line and calls this crate, or the measuring tools in `measure/tools`, which
//! stand on this crate. All decisions are made here: what to build, which image, which machine, how
//! its streams are connected to the host's. Modules: [`arguments`] are the options, [`run`] one
//! program in one machine, [`machines`] machines that stay, [`snapshots`] machines that are saved,
//! [`guest`] the machine and its session, [`vmm`] machines of other monitors, [`image`] root file
//! systems, [`containers`] images of containers, [`containerd`] its shim, [`disks`] disks that
//! last, [`persist`] roots that do, [`off2f`] executables in two files, [`templates`] templates that
//! are there at boot, [`test`] the tests.
//!
//! Errors are one line on standard error that says what to do next; statuses are in [`failure`].
#![forbid(unsafe_code)]

pub mod arguments;
pub mod compile;
pub mod containerd;
pub mod containers;
mod cpio;
pub mod disks;
pub mod failure;
pub mod guest;
pub mod image;
pub mod machines;
pub mod off2f;
pub mod paths;
pub mod persist;
pub mod progress;
pub mod run;
pub mod snapshots;
pub mod templates;
pub mod test;
pub mod tool;
pub mod vmm;
