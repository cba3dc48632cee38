//! Page faults and reads of single starts, by the guest's program `off2f count`.
//!
//! They are counted separately from the measurements, in a boot of their own, and do not depend on
//! the speed of the storage: each Hayate is counted once, on its first storage.

use super::describe::Description;
use super::results::{Counted, Counts};
use crate::boot::{Setup, System};
use anyhow::{Context, Result, ensure};
use hayate_cli::progress::Progress;

/// Counts one start of each program in each Hayate.
pub fn counts(setup: &Setup, what: &Description, systems: &[System]) -> Result<Vec<Counts>> {
    let mut all = Vec::new();
    // Each is in the list once for each storage.
    let kinds = what.systems.iter().zip(systems).filter(|(kind, _)| !kind.linux);
    for (kind, system) in kinds {
        let _step = Progress::new(format!("Counting page faults of {}", kind.title));
        let programs = what.workload.iter().filter_map(|w| Some((w, w.run.as_ref()?)));
        let programs: Vec<_> = programs.collect();
        let mut script = String::new();
        for (_, command) in &programs {
            if let Some(before) = &what.before {
                script += &format!("{before} || exit\n");
            }
            script += &format!("/usr/local/bin/off2f count --json -- {command} || exit\n");
        }
        // A statically linked shell keeps no libraries in memory.
        let words = ["/bin/busybox", "sh", "-c", &script].map(String::from).to_vec();
        let ended = setup.run(&system.without_throttle(), words)?;
        ensure!(ended.status == 0, "counting page faults: {}{}", ended.output, ended.error);
        let found = serde_json::Deserializer::from_str(&ended.output).into_iter::<Counted>();
        let found = found.collect::<Result<Vec<_>, _>>().context("what off2f count says")?;
        ensure!(found.len() == programs.len(), "not every program was counted: {}", ended.output);
        for ((work, command), counted) in programs.into_iter().zip(found) {
            let name = work.title.clone().unwrap_or_else(|| command.clone());
            all.push(Counts { name, system: kind.title.clone(), counted });
        }
    }
    all.sort_by_key(|counts| {
        what.workload.iter().position(|w| w.title.as_ref() == Some(&counts.name))
    });
    Ok(all)
}
