//! Why a machine failed before its guest did anything: each reason is one line.

use super::inquiry;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// The oldest QEMU that Hayate is tested with. An older one may work, and is not refused: its age
/// is mentioned only if QEMU itself refuses something.
const TESTED: (u64, u64) = (7, 2);
/// How much of a message fits on a line.
const MOST_SAID: usize = 200;
/// The statuses of setpriv(1) and nice(1) when they cannot execute the program. QEMU itself ends
/// with 1.
const NOT_EXECUTED: [i32; 2] = [126, 127];

/// The fault.
#[derive(Debug, PartialEq, Eq)]
pub enum MachineFault {
    /// QEMU's program cannot be executed.
    Unexecutable {
        /// Its path.
        program: PathBuf,
        /// The error of the host's kernel.
        why: String,
    },
    /// QEMU does not accept its options, or cannot provide what they request.
    Refused {
        /// Its message.
        said: String,
        /// Its version, if it is older than the tested ones.
        old: Option<(u64, u64)>,
    },
    /// QEMU ended before the first byte from the guest.
    Died {
        /// The kind of end.
        how: String,
        /// Its message.
        said: String,
        /// Whether the user may have requested this (`--qemu -version`).
        asked: bool,
    },
    /// QEMU stopped the machine.
    Stopped {
        /// The state that it reports.
        state: Option<String>,
        /// Its message.
        said: String,
    },
    /// No output came from the guest.
    Silent {
        /// The waiting time.
        waited: Duration,
        /// Whether QEMU reported that the machine was made.
        up: bool,
    },
}

/// The end of a QEMU process.
pub struct QemuEnd<'a> {
    /// Its program.
    pub program: &'a Path,
    /// How it ended.
    pub status: ExitStatus,
    /// Its version, if its monitor reported it.
    pub version: Option<(u64, u64)>,
    /// Whether the machine was made.
    pub up: bool,
    /// Why the machine shut down, if it did.
    pub reason: Option<&'a str>,
    /// Its output on standard error.
    pub complaint: &'a str,
}

impl MachineFault {
    /// Returns the fault of a QEMU that ended before the first byte from its guest.
    pub fn of(ended: &QemuEnd) -> MachineFault {
        let code = ended.status.code();
        let said = in_our_words(gist(ended.complaint));
        if code.is_some_and(|code| NOT_EXECUTED.contains(&code)) && !ended.up {
            let why = said.rsplit_once(": ").map_or(said.as_str(), |(_, why)| why).to_string();
            return MachineFault::Unexecutable { program: ended.program.into(), why };
        }
        if code == Some(1) && !ended.up && !said.is_empty() {
            let version = ended.version.or_else(|| inquiry::version(ended.program));
            return MachineFault::Refused {
                said,
                old: version.filter(|version| *version < TESTED),
            };
        }
        let how = match (ended.reason, code, ended.status.signal()) {
            (Some(reason), ..) => reason.to_string(),
            (None, Some(code), _) => format!("status {code}"),
            (None, None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        MachineFault::Died { how, said, asked: !ended.up && code == Some(0) }
    }

    /// Whether the same machine may work under another accelerator.
    pub fn may_be_of_kvm(&self) -> bool {
        match self {
            MachineFault::Unexecutable { .. } => false,
            MachineFault::Refused { said, .. } => said.to_ascii_lowercase().contains("kvm"),
            MachineFault::Died { asked, .. } => !asked,
            MachineFault::Stopped { .. } | MachineFault::Silent { .. } => true,
        }
    }

    /// Adds QEMU's standard error to the fault.
    pub fn with(mut self, complaint: &str) -> MachineFault {
        if let MachineFault::Stopped { said, .. } = &mut self {
            *said = gist(complaint);
        }
        self
    }
}

impl fmt::Display for MachineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |f: &mut fmt::Formatter<'_>, said: &str| match said {
            "" => Ok(()),
            said => write!(f, ": {said}"),
        };
        match self {
            MachineFault::Unexecutable { program, why } => {
                write!(f, "{} cannot be executed: {why}", program.display())
            }
            MachineFault::Refused { said, old } => {
                write!(f, "QEMU does not start the machine: {said}")?;
                let Some((major, minor)) = old else { return Ok(()) };
                let (least, after) = TESTED;
                write!(
                    f,
                    " (QEMU is version {major}.{minor}; Hayate is tested with {least}.{after} and newer)"
                )
            }
            MachineFault::Died { how, said, .. } => {
                write!(f, "QEMU ended ({how}) before the guest printed anything")?;
                told(f, said)
            }
            MachineFault::Stopped { state, said } => {
                let state = state.as_deref().unwrap_or("for an unknown reason");
                write!(f, "QEMU stopped the machine ({state})")?;
                told(f, said)
            }
            MachineFault::Silent { waited, up: true } => {
                write!(f, "the kernel printed nothing for {} s", waited.as_secs())
            }
            MachineFault::Silent { waited, up: false } => {
                write!(f, "QEMU did not start the machine within {} s", waited.as_secs())
            }
        }
    }
}

/// Returns the most informative line of a message: the first that is not a warning.
fn gist(complaint: &str) -> String {
    let lines = || complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| !line.contains("warning: ")).or_else(|| lines().next());
    let line = line.unwrap_or_default();
    let line = line.strip_prefix("qemu-system-x86_64: ").unwrap_or(line);
    line.chars().filter(|c| !c.is_control()).take(MOST_SAID).collect()
}

/// Says what QEMU says of an option that it does not have here by the option of this command.
fn in_our_words(said: String) -> String {
    // Before and since QEMU 8.
    let lacks = ["expects a netdev backend type", "is not compiled into this binary"];
    if said.contains("-netdev user") && lacks.iter().any(|text| said.contains(text)) {
        return "this QEMU has no network of its own (libslirp) for --net user; \
                use passt, tap:NAME or none"
            .into();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: i32, up: bool, reason: Option<&str>, complaint: &str) -> MachineFault {
        MachineFault::of(&QemuEnd {
            program: Path::new("/q"),
            status: ExitStatus::from_raw(status),
            version: Some((5, 2)),
            up,
            reason,
            complaint,
        })
    }

    const ONE: i32 = 1 << 8;

    #[test]
    fn a_refusal_says_what_and_whether_qemu_is_old() {
        let fault =
            of(ONE, false, None, "qemu-system-x86_64: warning: x\nqemu-system-x86_64: -y: no");
        let text = "QEMU does not start the machine: -y: no (QEMU is version 5.2; Hayate is tested with 7.2 and newer)";
        assert_eq!(fault.to_string(), text);
        assert!(!fault.may_be_of_kvm());
        assert!(of(ONE, false, None, "Could not access KVM kernel module: busy").may_be_of_kvm());
    }

    #[test]
    fn a_qemu_without_a_network_of_its_own_is_told() {
        for said in [
            "-netdev user,id=net: Parameter 'type' expects a netdev backend type",
            "-netdev user,id=net: network backend 'user' is not compiled into this binary",
        ] {
            let text = of(ONE, false, None, &format!("qemu-system-x86_64: {said}")).to_string();
            assert!(text.contains("this QEMU has no network of its own"), "{text}");
        }
    }

    #[test]
    fn a_program_that_is_none_is_named() {
        let fault = of(126 << 8, false, None, "setpriv: failed to execute /q: Exec format error");
        assert_eq!(fault.to_string(), "/q cannot be executed: Exec format error");
        assert!(!fault.may_be_of_kvm());
    }

    #[test]
    fn an_early_end_says_how() {
        let fault = of(6, false, None, "error: failed to set MSR 0x10a to 0x69\nAssertion");
        let text = "QEMU ended (signal 6) before the guest printed anything: \
                    error: failed to set MSR 0x10a to 0x69";
        assert_eq!(fault.to_string(), text);
        assert!(fault.may_be_of_kvm());
        let fault = of(0, true, Some("guest-reset"), "");
        assert_eq!(fault.to_string(), "QEMU ended (guest-reset) before the guest printed anything");
        assert!(fault.may_be_of_kvm());
        // As after `--qemu -version`.
        assert!(!of(0, false, None, "").may_be_of_kvm());
    }

    #[test]
    fn a_stop_says_the_state() {
        let state = Some("internal-error".to_string());
        let fault = MachineFault::Stopped { state, said: String::new() };
        let fault = fault.with("KVM internal error. Suberror: 1\nRAX=0");
        let text = "QEMU stopped the machine (internal-error): KVM internal error. Suberror: 1";
        assert_eq!(fault.to_string(), text);
        let fault = MachineFault::Stopped { state: None, said: String::new() };
        assert_eq!(fault.to_string(), "QEMU stopped the machine (for an unknown reason)");
    }
}
