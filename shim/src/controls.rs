//! The resources of a specification as files of a control group of version 2, as runc turns them.
//!
//! Passed over are numbers of the host's processors and disks, which mean nothing in a
//! machine (`cpus`, `mems`, `blockIO`); limits of swap, of which a machine has none; of huge pages,
//! RDMA and classes of packets, of which it knows none; and what version 2 of control groups does
//! not have (`kernel`, `swappiness`, `disableOOMKiller`, real-time processor time).

use anyhow::{Context, Result, ensure};
use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxResources};

/// The period of a quota that names none, in microseconds.
const USUAL_PERIOD: u64 = 100_000;

/// Files of a control group, and what is written there, in this order.
pub type Controls = Vec<(String, Vec<u8>)>;

/// Returns what resources ask for.
///
/// # Errors
/// An amount that is none.
pub fn of(resources: &LinuxResources) -> Result<Controls> {
    let mut controls = Controls::new();
    let mut put = |file: &str, value: String| controls.push((file.into(), value.into_bytes()));
    if let Some(memory) = resources.memory() {
        check_swap(memory)?;
        let reservation = amount("reservation of memory", memory.reservation())?;
        reservation.into_iter().for_each(|value| put("memory.low", value));
        let limit = amount("limit of memory", memory.limit())?;
        limit.into_iter().for_each(|value| put("memory.max", value));
    }
    if let Some(cpu) = resources.cpu() {
        of_cpu(cpu).into_iter().for_each(|(file, value)| put(file, value));
    }
    if let Some(pids) = resources.pids() {
        let limit = amount("limit of processes", Some(pids.limit()))?;
        limit.into_iter().for_each(|value| put("pids.max", value));
    }
    // In an order of its own, so that each start makes the same.
    let mut unified: Vec<_> = resources.unified().iter().flatten().collect();
    unified.sort();
    for (file, value) in unified {
        let is_name = !file.is_empty() && file.contains('.') && !file.starts_with('.');
        ensure!(is_name && !file.contains(['/', '\0']), "no file of a control group: {file:?}");
        ensure!(!value.contains('\0'), "{file}: the value holds a zero byte");
        put(file, value.clone());
    }
    Ok(controls)
}

/// An amount as a file takes it. `None`: it is not set. -1 stands for no limit.
fn amount(name: &str, value: Option<i64>) -> Result<Option<String>> {
    match value {
        None | Some(0) => Ok(None),
        Some(-1) => Ok(Some("max".into())),
        Some(value) => {
            ensure!(value > 0, "the {name} is {value}");
            Ok(Some(value.to_string()))
        }
    }
}

/// The limit of swap includes that of memory. It needs no file: nothing is ever swapped.
fn check_swap(memory: &LinuxMemory) -> Result<()> {
    let Some(swap) = memory.swap().filter(|&swap| swap != 0 && swap != -1) else { return Ok(()) };
    let limit = memory.limit().filter(|&limit| limit != 0 && limit != -1);
    let limit = limit.context("a limit of swap is asked for without one of memory")?;
    ensure!(swap >= limit, "the limit of memory and swap, {swap}, is less than that of memory");
    Ok(())
}

fn of_cpu(cpu: &LinuxCpu) -> Vec<(&'static str, String)> {
    let mut controls = Vec::new();
    let is_idle = cpu.idle().is_some_and(|idle| idle != 0);
    if let Some(idle) = cpu.idle() {
        controls.push(("cpu.idle", idle.to_string()));
    }
    // An idle group has no weight of its own.
    if let Some(shares) = cpu.shares().filter(|&shares| shares != 0 && !is_idle) {
        controls.push(("cpu.weight", weight(shares).to_string()));
    }
    let (quota, period) = (cpu.quota().unwrap_or_default(), cpu.period().unwrap_or_default());
    if quota != 0 || period != 0 {
        let quota = if quota > 0 { quota.to_string() } else { "max".into() };
        let period = if period == 0 { USUAL_PERIOD } else { period };
        controls.push(("cpu.max", format!("{quota} {period}")));
    }
    if let Some(burst) = cpu.burst() {
        controls.push(("cpu.max.burst", burst.to_string()));
    }
    controls
}

/// Shares of version 1, 2 to 262144, as a weight of version 2, 1 to 10000.
fn weight(shares: u64) -> u64 {
    const LEAST: u64 = 2;
    const MOST: u64 = 262_144;
    1 + (shares.clamp(LEAST, MOST) - LEAST) * 9999 / (MOST - LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(resources: Value) -> Result<Vec<String>> {
        let controls = of(&serde_json::from_value(resources)?)?;
        let line =
            |(file, value): (String, Vec<u8>)| Ok(format!("{file}={}", String::from_utf8(value)?));
        controls.into_iter().map(line).collect()
    }

    #[test]
    fn resources_are_files() {
        let all = json!({
            "memory": { "limit": 1 << 26, "reservation": 4096, "swap": 1 << 27, "swappiness": 60 },
            "cpu": { "shares": 1024, "quota": 50_000, "period": 100_000, "cpus": "0-3" },
            "pids": { "limit": 17 },
            "blockIO": { "weight": 500 },
            "unified": { "memory.high": "1M", "cgroup.max.depth": "3" },
        });
        let wanted = [
            "memory.low=4096",
            "memory.max=67108864",
            "cpu.weight=39",
            "cpu.max=50000 100000",
            "pids.max=17",
            "cgroup.max.depth=3",
            "memory.high=1M",
        ];
        assert_eq!(shown(all).unwrap(), wanted);
        let none = json!({ "memory": { "limit": -1, "swap": -1 }, "cpu": { "quota": -1 },
                           "pids": { "limit": -1 } });
        assert_eq!(shown(none).unwrap(), ["memory.max=max", "cpu.max=max 100000", "pids.max=max"]);
        let unset = json!({ "memory": { "limit": 0 }, "cpu": { "shares": 0 }, "pids": { "limit": 0 },
                            "hugepageLimits": [{ "pageSize": "2MB", "limit": 0 }] });
        assert!(shown(unset).unwrap().is_empty() && shown(json!({})).unwrap().is_empty());
        let idle = json!({ "cpu": { "idle": 1, "shares": 2, "burst": 5 } });
        assert_eq!(shown(idle).unwrap(), ["cpu.idle=1", "cpu.max.burst=5"]);
    }

    #[test]
    fn shares_are_a_weight_that_there_is() {
        for (shares, wanted) in [(1, 1), (2, 1), (1024, 39), (262_144, 10_000), (u64::MAX, 10_000)]
        {
            assert_eq!(weight(shares), wanted, "{shares}");
        }
    }

    #[test]
    fn amounts_that_are_none_are_refused() {
        for (resources, wrong) in [
            (json!({ "memory": { "limit": -5 } }), "limit of memory is -5"),
            (json!({ "memory": { "reservation": i64::MIN } }), "reservation"),
            (json!({ "memory": { "swap": 4096 } }), "without one of memory"),
            (json!({ "memory": { "limit": 8192, "swap": 4096 } }), "is less"),
            (json!({ "pids": { "limit": -2 } }), "limit of processes is -2"),
            (json!({ "unified": { "../x": "1" } }), "no file"),
            (json!({ "unified": { "a/b.c": "1" } }), "no file"),
            (json!({ "unified": { "memory.max": "\u{0}" } }), "zero byte"),
        ] {
            let error = shown(resources).unwrap_err().to_string();
            assert!(error.contains(wrong), "{wrong}: {error}");
        }
    }
}
