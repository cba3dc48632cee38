//! Filters of system calls, which the programs of a container have.

use super::super::command::Hayate;
use super::checks::same;
use super::daemon::Daemon;
use anyhow::{Result, ensure};
use serde_json::json;

/// Prints whether there is a filter, and what calls that one may judge say: chmod with one mode and
/// with another, the end of a program by SIGSYS.
const CALLS: &str = "grep -c 'Seccomp:.2' /proc/self/status; mkdir /tmp/a; chmod 755 /tmp/a && \
                     echo open; chmod 700 /tmp/a || echo refused; sync; echo $?";

pub fn filters(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let profile = daemon.path("profile.json");
    let mode = |name: &str, index: usize| {
        json!({ "names": [name, "no_such_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13,
                "args": [{ "index": index, "value": 0o777, "valueTwo": 0o700,
                           "op": "SCMP_CMP_MASKED_EQ" }] })
    };
    let wanted = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            mode("chmod", 1),
            mode("fchmodat", 2),
            { "names": ["sync"], "action": "SCMP_ACT_KILL_PROCESS" },
        ],
    });
    std::fs::write(&profile, wanted.to_string())?;
    let profile = profile.display().to_string();
    let options = ["--seccomp", "--seccomp-profile", &profile];
    // With privileges renounced, as ctr has it, and without.
    for more in [&[][..], &["--allow-new-privs"]] {
        let text = daemon.shell(&[&options[..], more].concat(), CALLS, 0)?;
        same(&text, "1\nopen\nrefused\n159\n")?;
    }
    same(&daemon.shell(&[], CALLS, 0)?, "0\nopen\n0\n")?;
    // containerd's own profile, and a further program of a container.
    daemon.keep(&["--seccomp"], "c", "sleep 1000; true")?;
    let text = "grep -c 'Seccomp:.2' /proc/self/status; unshare -U true 2>&1; ls -d /srv; \
                test $(seq 100 | wc -l) = 100 && echo usual";
    let found = daemon.exec("c", text, 0)?;
    ensure!(found.starts_with("1\n") && found.ends_with("/srv\nusual\n"), "{found}");
    ensure!(found.contains("Operation not permitted"), "{found}");
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "c"], 0)?;
    daemon.await_state("c", "STOPPED")?;
    daemon.remove("c")?;
    daemon.is_clean()
}
