//! Remembered starts: `./hayate run --recycle full+image`.
//!
//! The checks run in the guest (`images.sh`, `images-never.sh`): they start the same commands again
//! and again, so that they begin at images, and compare what they print.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use crate::image::default;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Output, Stdio};

const CHECKS: [(&str, Check); 28] = [
    ("print_the_same_at_each_start", |hayate| check(hayate, &[], "same_output")),
    ("see_every_change", |hayate| check(hayate, &[], "changes_are_seen")),
    ("see_what_is_mounted", |hayate| check(hayate, &[], "mounts")),
    ("end_as_they_should", |hayate| check(hayate, &[], "statuses")),
    ("have_their_own_number_and_time", |hayate| check(hayate, &[], "numbers_and_time")),
    ("open_their_files_anew", |hayate| check(hayate, &[], "open_files")),
    ("share_random_bytes_so_often", |hayate| {
        check(hayate, &["--append", "images=starts-5"], "share_so_often")
    }),
    ("have_random_bytes_of_their_own", |hayate| {
        check(hayate, &["--append", "images=fresh-random"], "fresh_random")
    }),
    ("forget_what_another_process_did", |hayate| check(hayate, &[], "from_outside")),
    ("are_as_if_there_were_none", |hayate| {
        check(hayate, &["--timeout", "300"], "as_if_there_were_none")
    }),
    ("are_not_made_of_traced_programs", |hayate| {
        check(hayate, &["--append", "trace=syscalls"], "traced")
    }),
    ("are_never_of_debugged_programs", |hayate| check(hayate, &[], "debugged")),
    ("are_never_of_programs_under_strace", |hayate| {
        let image = default::DEBUGGERS.get()?;
        check(hayate, &["--rootfs", &image.to_string_lossy()], "straced")
    }),
    ("are_never_of_filtered_programs", |hayate| check(hayate, &[], "filtered")),
    ("are_never_of_set_user_id_programs", |hayate| check(hayate, &[], "set_user_id")),
    ("share_no_written_page", |hayate| {
        check(hayate, &["--timeout", "300", "--cpus", "2"], "written_pages")
    }),
    ("leave_their_spaces_to_others", |hayate| check(hayate, &["--timeout", "300"], "heirs")),
    ("leave_them_with_little_memory", |hayate| {
        check(hayate, &["--timeout", "300", "--memory", "64M"], "heirs 0")
    }),
    ("leave_them_at_once", |hayate| {
        check(hayate, &["--timeout", "300", "--cpus", "2"], "heirs_at_once")
    }),
    ("end_with_their_pipelines", |hayate| {
        check(hayate, &["--timeout", "600", "--cpus", "2"], "pipelines 15")
    }),
    ("end_with_their_pipelines_on_four_processors", |hayate| {
        check(hayate, &["--timeout", "600", "--cpus", "4"], "pipelines 8")
    }),
    ("answer_for_the_real_user", |hayate| check(hayate, &[], "real_user")),
    ("tell_what_room_there_is", |hayate| check(hayate, &[], "room")),
    ("see_what_is_remounted", |hayate| check(hayate, &[], "remounted")),
    ("find_nothing_in_another_directory", |hayate| check(hayate, &[], "inherited_directories")),
    ("serve_one_user_each", |hayate| check(hayate, &[], "users")),
    ("are_never_stale_in_a_storm", |hayate| {
        check(hayate, &["--timeout", "300", "--cpus", "2"], "storm 25")
    }),
    (LONG_STORM, |hayate| {
        // Beside other rows: it lasts as long on a busy processor, and needs none for itself.
        let options = ["--timeout", "1500", "--cpus", "2"];
        let mut command = Command::new("nice");
        let storm = command_of(hayate, &options, "storm 600")?;
        command.args(["-n", "10"]).arg(storm.get_program()).args(storm.get_args());
        command.envs(storm.get_envs().filter_map(|(name, value)| Some((name, value?))));
        judge(command.stdin(Stdio::null()).output()?)
    }),
];

/// The row that is run with `--long` only.
const LONG_STORM: &str = "are_never_stale_in_a_long_storm";

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = trials_of("images", &CHECKS, options);
    trials.retain(|trial| !trial.name.ends_with(LONG_STORM) || options.includes_long(&trial.name));
    let beside = |trial: Trial| match trial.name.ends_with(LONG_STORM) {
        true => trial.weight(0),
        false => trial,
    };
    trials.into_iter().map(beside).collect()
}

const SCRIPT: &str = concat!(include_str!("images.sh"), include_str!("images-never.sh"));

/// Runs one check of the script in a machine with these options.
fn check(hayate: &Hayate, options: &[&str], check: &str) -> Result<()> {
    judge(command_of(hayate, options, check)?.output()?)
}

fn command_of(hayate: &Hayate, options: &[&str], check: &str) -> Result<Command> {
    let options = [&["--recycle", "full+image", "--net", "none"], options].concat();
    let script = format!("set -- {check}\n{SCRIPT}");
    hayate.command(&options, &["/bin/sh", "-c", &script])
}

fn judge(output: Output) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().with_context(|| format!("it said only {said}"))?;
    ensure!(last == "done" && output.status.success(), "{text}{said}");
    Ok(())
}
