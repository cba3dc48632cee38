//! The options of `containerd`.

use crate::arguments::Accel;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Printed below the help of `containerd`.
pub const CONTAINERD_HELP: &str = "\
Examples:
  sudo ./hayate containerd install
  sudo ctr image pull docker.io/library/alpine:3
  sudo ctr run --rm --runtime io.containerd.hayate.v1 docker.io/library/alpine:3 one uname -a
  ./hayate containerd install --prefix /opt/hayate    then add /opt/hayate/bin to containerd's PATH
  sudo ./hayate containerd remove

docs/containerd.md tells which parts of a container's specification count, and how nerdctl,
Kubernetes and Nomad are told of the runtime.";

/// `containerd`.
#[derive(Args)]
pub struct Containerd {
    /// The request.
    #[command(subcommand)]
    pub request: ContainerdRequest,
}

/// The commands of `containerd`.
#[derive(Subcommand)]
pub enum ContainerdRequest {
    /// Install the shim and what its machines need: DIR/bin/containerd-shim-hayate-v1 and
    /// DIR/lib/hayate
    Install {
        /// Where
        #[arg(long, value_name = "DIR", default_value = "/usr/local")]
        prefix: PathBuf,
        /// How QEMU runs the processor: auto finds out now whether KVM works here
        #[arg(long, value_enum, default_value_t = Accel::Auto, env = "HAYATE_ACCEL")]
        accel: Accel,
    },
    /// Remove what was installed; containers that run go on
    Remove {
        /// From where
        #[arg(long, value_name = "DIR", default_value = "/usr/local")]
        prefix: PathBuf,
    },
}
