//! Programs that put load on the guest for a while, as a table.
//!
//! Each row is a machine and a program of `tests/stress` in it; it passes if the program ends with
//! status 0. A row computes, so it has as many processors of the host to itself as its machine has.

use super::guest::{self, Programs};
use super::report::{Case, Verdict};
use super::{Report, Trial};
use crate::arguments::network::{Net, Network};
use crate::arguments::{Profile, Test};
use std::time::Duration;

/// A row of the table.
#[derive(Clone, Copy)]
struct Stress {
    name: &'static str,
    /// The machine's processors.
    cpus: u8,
    /// The program, below `tests/stress`, and its arguments, separated by blanks.
    command: &'static str,
    /// A word on the kernel's command line, or nothing.
    append: &'static str,
    /// Whether the machine has no network card.
    offline: bool,
    /// The machine's memory, in MiB.
    memory: u64,
    /// The machine's time limit.
    limit: Duration,
    /// Whether it needs a kernel of profile `dev`, which can refuse memory.
    dev_kernel: bool,
    /// Whether it runs only with `--long`.
    long: bool,
    /// Whether it runs beside the other trials, at low priority on the host.
    beside: bool,
}

/// A row for every run of the tests, with a machine of 1 GiB.
const fn row(name: &'static str, cpus: u8, command: &'static str) -> Stress {
    let limit = guest::MACHINE_LIMIT;
    Stress {
        name,
        cpus,
        command,
        append: "",
        offline: false,
        memory: 1024,
        limit,
        dev_kernel: false,
        long: false,
        beside: false,
    }
}

/// A row for `--long`.
const fn long(name: &'static str, cpus: u8, command: &'static str) -> Stress {
    Stress { long: true, ..row(name, cpus, command) }
}

impl Stress {
    const fn memory(self, memory: u64) -> Stress {
        Stress { memory, ..self }
    }

    const fn append(self, append: &'static str) -> Stress {
        Stress { append, ..self }
    }

    /// Without a network card: packets with addresses of others leave the machine otherwise.
    const fn offline(self) -> Stress {
        Stress { offline: true, ..self }
    }

    const fn dev_kernel(self) -> Stress {
        Stress { dev_kernel: true, ..self }
    }

    const fn limit(self, limit: Duration) -> Stress {
        Stress { limit, ..self }
    }

    const fn beside(self) -> Stress {
        Stress { beside: true, ..self }
    }

    fn trial_name(&self) -> String {
        format!("stress/{}-cpu/{}", self.cpus, self.name)
    }

    fn is_chosen(&self, options: &Test) -> bool {
        options.cpus.contains(&self.cpus)
            && (!self.long || options.includes_long(&self.trial_name()))
    }

    /// The time limit of a row that takes the better part of an hour, on a slow machine more.
    const HOURS: Duration = Duration::from_secs(10_800);
}

/// The table. Among rows that keep equally many processors busy, the longest is started first.
#[rustfmt::skip]
const TABLE: &[Stress] = &[
    long("long_requests_for_memory_refused", 1, "refusal --places 4 --each /tests/static")
        .dev_kernel().limit(Stress::HOURS),
    row("requests_for_memory_refused", 1,
        "refusal --places 1 --only copy,cred,dir,epoll,errors,exec,fault,file,mapfile,mem,meta,\
         mount,object,overlay,path,poll,process,processors,refuse,refusefile,rtnetlink,\
         segment,socket,sockopt,thread,transform,watch,xattr /tests/static")
        .dev_kernel(),
    long("random_system_calls_for_ten_minutes", 2,
        "sysfuzz --seed 1 --seconds 600 --procs 4 --as-root --groups").beside(),
    long("run_100000_mutated_programs_twice", 2,
        "elfmut --seed 2 --count 100000 /tests/stress/tiny"),
    long("long_bytes_over_a_bad_network", 2,
        "lossy --mib 256 --calls 200 --datagrams 500 --mtu 1500")
        .append("net.fault=loss:5,repeat:2,reorder:2,corrupt:2,delay:500us-1ms")
        .limit(Duration::from_secs(1800)),
    long("long_random_packets", 2, "packetfuzz --seed 2 --seconds 600").offline()
        .limit(Duration::from_secs(1800)),
    long("long_starts_until_memory_ends", 2, "storm --seconds 10 --runs 6 bomb").memory(128),
    long("long_killed_at_any_moment", 1, "storm --seconds 10 --runs 6 strike"),
    long("long_killed_at_any_moment", 4, "storm --seconds 10 --runs 6 strike"),
    long("long_started_while_replaced", 1, "storm --seconds 24 --runs 3 replace"),
    long("long_started_while_replaced", 4, "storm --seconds 24 --runs 3 replace"),
    long("long_policy_changed_in_a_storm", 2, "storm --seconds 10 --runs 6 policy"),
    long("long_policy_changed_in_a_storm", 4, "storm --seconds 10 --runs 6 policy"),
    row("spawn_10000_without_a_leak", 2, "spawner --count 10000 --procs 2 --leak-check"),
    row("run_10000_mutated_programs_twice", 2, "elfmut --seed 1 --count 10000 /tests/stress/tiny"),
    row("random_packets", 2, "packetfuzz --seed 1 --seconds 25").offline(),
    row("random_paths_as_a_model_has_them", 2, "pathfuzz --seed 1 --count 100000"),
    row("bytes_over_a_bad_network", 2, "lossy --mib 16")
        .append("net.fault=loss:5,repeat:2,reorder:2,corrupt:5,delay:100us-1ms"),
    row("small_segments_over_a_bad_network", 2,
        "lossy --mib 16 --datagrams 500 --mtu 1500 \
         --fault loss:5,repeat:2,reorder:2,corrupt:2,delay:500us"),
    row("random_system_calls", 2, "sysfuzz --seed 2 --seconds 20 --procs 4 --as-root --groups"),
    row("random_system_calls_of_a_user", 2, "sysfuzz --seed 3 --seconds 20 --procs 4 --groups"),
    row("random_system_calls_of_one_process", 1,
        "sysfuzz --seed 4 --seconds 20 --procs 1 --as-root"),
    row("a_user_fills_unix_sockets", 2, "objects --procs 3 --only bytes").memory(64),
    row("a_user_fills_pipes", 2, "objects --procs 3 --only pipe").memory(64),
    row("a_user_fills_backlogs", 2, "objects --procs 3 --only backlog,connections").memory(64),
    row("a_user_fills_whatever_it_can_open", 2, "objects --procs 3").memory(64),
    row("starts_until_memory_ends", 1, "storm --seconds 1 bomb").memory(128),
    row("starts_until_memory_ends", 2, "storm --seconds 1 bomb").memory(128),
    row("starts_until_a_limit_of_processes", 2, "storm --seconds 1 --limit 60 bomb"),
    row("large_processes_end_beside_little_memory", 1, "../static/teardown").memory(128),
    row("large_processes_end_beside_little_memory", 2, "../static/teardown").memory(128),
    row("the_first_process_outlives_a_hoarder", 1, "storm hoard").memory(128),
    row("kept_memory_gives_way_to_requests", 1, "../static/pressure").memory(64),
    row("kept_memory_gives_way_to_requests", 2, "../static/pressure").memory(64),
    row("syn_flood", 2, "siege syn-flood --seconds 5 --backlog 64").memory(64).offline(),
    row("syn_flood_of_a_long_queue", 2, "siege syn-flood --seconds 4 --backlog 4096")
        .memory(64).offline(),
    row("half_open_connections", 2, "siege half-open --count 200").memory(64).offline(),
    row("windows_of_no_byte", 2, "siege windows --window 0 --count 40 --seconds 5")
        .memory(64).offline(),
    row("windows_of_a_byte", 2, "siege windows --window 1 --count 40 --seconds 5")
        .memory(64).offline(),
    row("fragments_that_overlap", 2, "siege fragments --seconds 6").memory(64).offline(),
    row("thousands_of_sockets_that_nobody_reads", 2, "sockets --most 600").memory(64).offline(),
    row("killed_at_any_moment", 2, "storm --seconds 2 strike"),
    row("started_while_replaced", 2, "storm --seconds 3 replace"),
    row("policy_changed_in_a_storm", 2, "storm --seconds 1 policy"),
    row("policy_changed_in_a_storm", 4, "storm --seconds 1 policy"),
];

/// Returns the trials of the table's rows.
pub fn trials(options: &Test, programs: &Programs) -> Vec<Trial> {
    TABLE
        .iter()
        .filter(|row| row.is_chosen(options))
        .map(|row| trial(row, options, programs))
        .collect()
}

fn trial(row: &Stress, options: &Test, programs: &Programs) -> Trial {
    let mut machine = guest::machine(options, row.cpus);
    machine.memory = row.memory;
    machine.background = row.beside;
    if row.offline {
        machine.network = Network::of(Net::None);
    }
    if !row.append.is_empty() {
        machine.append.push(row.append.into());
    }
    if row.dev_kernel {
        machine.profile = Profile::Dev;
    }
    let folder = programs.folder.clone();
    let command = format!("{}/stress/{}", guest::GUEST_FOLDER, row.command);
    let words: Vec<String> = command.split_whitespace().map(String::from).collect();
    let limit = row.limit;
    let trial = Trial::new(row.trial_name(), move |_| {
        let (outcome, output, said) = guest::run(&machine, &folder, &words, limit)?;
        let verdict = match guest::end(&outcome) {
            Ok(()) => Verdict::Passed,
            Err(why) => Verdict::Failed(why),
        };
        let output = format!("{output}{said}{}", guest::failure_shown(&outcome));
        Ok(Report { cases: vec![Case::new("", verdict)], output })
    });
    trial.weight(if row.beside { 0 } else { usize::from(row.cpus) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_names_of_their_own() {
        let names: BTreeSet<String> = TABLE.iter().map(Stress::trial_name).collect();
        assert_eq!(names.len(), TABLE.len());
    }
}
