//! The size of a pod's machine.

use anyhow::{Result, bail};
use oci_spec::runtime::{LinuxResources, Spec};

/// Memory of a machine whose specification has no limit, in MiB.
const USUAL_MEMORY: u64 = 1024;
/// The memory of kernel, init and tables beside the limit, in MiB.
const OVERHEAD: u64 = 64;
/// The least and the most processors of a machine.
const CPUS: std::ops::RangeInclusive<i64> = 1..=16;

/// Annotations by which containerd's CRI tells how large a pod is.
const MEMORY: &str = "io.kubernetes.cri.sandbox-memory";
const QUOTA: &str = "io.kubernetes.cri.sandbox-cpu-quota";
const PERIOD: &str = "io.kubernetes.cri.sandbox-cpu-period";

/// The size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// MiB.
    pub memory: u64,
    /// Processors.
    pub cpus: u8,
}

impl Size {
    /// The size of the machine: the pod's by its annotations, or the container's by its resources.
    pub fn of(spec: &Spec) -> Size {
        let annotations = spec.annotations().clone().unwrap_or_default();
        let number = |key: &str| -> Option<i64> {
            annotations.get(key)?.parse().ok().filter(|&number| number > 0)
        };
        let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        let of_memory = |resources: &LinuxResources| resources.memory().as_ref()?.limit();
        let limit = number(MEMORY).or_else(|| resources.and_then(of_memory));
        let limit = limit.filter(|&limit| limit > 0);
        let memory =
            limit.map_or(USUAL_MEMORY, |bytes| bytes.unsigned_abs().div_ceil(1 << 20) + OVERHEAD);
        let of_cpu = |resources: &LinuxResources| {
            let cpu = resources.cpu().as_ref()?;
            Some((cpu.quota()?, i64::try_from(cpu.period()?).ok()?))
        };
        let share = number(QUOTA).zip(number(PERIOD)).or_else(|| resources.and_then(of_cpu));
        let share = share.filter(|&(quota, period)| quota > 0 && period > 0);
        let cpus =
            share.map_or(1, |(quota, period)| quota / period + i64::from(quota % period > 0));
        let cpus = cpus.clamp(*CPUS.start(), *CPUS.end());
        Size { memory: memory.max(2 * OVERHEAD), cpus: u8::try_from(cpus).unwrap_or(1) }
    }

    /// Whether a machine of this size can do what a file of a control group is told.
    ///
    /// # Errors
    /// It has less.
    pub fn check(&self, (file, value): &(String, Vec<u8>)) -> Result<()> {
        let value = String::from_utf8_lossy(value);
        let mut numbers = value.split(' ').map_while(|word| word.parse::<u64>().ok());
        match &file[..] {
            "memory.max" if numbers.next().is_some_and(|bytes| bytes > self.memory << 20) => bail!(
                "a limit of {value} bytes is more than the memory of the machine, {} MiB, which \
                 stays as it is",
                self.memory
            ),
            "cpu.max"
                if numbers.next().zip(numbers.next()).is_some_and(|(quota, period)| {
                    quota.div_ceil(period.max(1)) > u64::from(self.cpus)
                }) =>
            {
                bail!("a quota of {value} is more than the {} processors of the machine", self.cpus)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_machine_has_the_size_of_its_pod() {
        let sized = |resources: Value, annotations: Value| {
            let spec = json!({
                "ociVersion": "1.0.2", "annotations": annotations,
                "linux": { "resources": resources },
            });
            Size::of(&serde_json::from_value(spec).unwrap())
        };
        let cpu = json!({ "quota": 150_000, "period": 100_000 });
        let limits = json!({ "memory": { "limit": 128 << 20 }, "cpu": cpu });
        assert_eq!(sized(limits.clone(), json!({})), Size { memory: 192, cpus: 2 });
        let pod = json!({ MEMORY: "268435456", QUOTA: "300000", PERIOD: "100000" });
        assert_eq!(sized(limits, pod), Size { memory: 320, cpus: 3 });
        let none = json!({ "memory": { "limit": -1 }, "cpu": { "quota": -1, "period": 100_000 } });
        assert_eq!(sized(none, json!({})), Size { memory: 1024, cpus: 1 });
    }

    #[test]
    fn a_machine_does_not_grow() {
        let size = Size { memory: 128, cpus: 2 };
        let check = |file: &str, value: &str| size.check(&(file.into(), value.into()));
        for (file, most, more) in [
            ("memory.max", "134217728", "134217729"),
            ("cpu.max", "200000 100000", "200001 100000"),
            ("cpu.max", "max 100000", "300 0"),
        ] {
            assert!(check(file, most).is_ok() && check(file, more).is_err(), "{file} {more}");
        }
        assert!(check("memory.max", "max").is_ok() && check("pids.max", "99999999999").is_ok());
    }
}
