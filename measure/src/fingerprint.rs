//! The fingerprint of a machine: the facts that a reader needs to judge its numbers. They come from
//! CPUID, uname(2) and files under /proc and /sys; facts that are not available are left out.

use measure_data::run::{Cache, Fact, Machine};
use measure_data::units::{parse_size, size};
use raw_cpuid::{CacheType, CpuId, Hypervisor};
use std::ffi::CStr;
use std::fs;
use std::path::Path;

/// Fingerprints this machine; `directory` is where the files of experiments are.
pub fn machine(directory: &Path) -> Machine {
    let mut facts = Facts::default();
    processor(&mut facts);
    let caches = caches();
    for cache in &caches {
        facts.add(
            "cpu",
            &format!("L{} cache", cache.level),
            Some(format!(
                "{}, lines of {} bytes ({})",
                size(cache.bytes as f64),
                cache.line,
                cache.source
            )),
        );
    }
    memory(&mut facts);
    kernel(&mut facts);
    disk(&mut facts, directory);
    network(&mut facts);
    Machine { facts: facts.0, caches }
}

/// Whether a hypervisor reports itself.
pub fn virtualised() -> bool {
    CpuId::new().get_feature_info().is_some_and(|f| f.has_hypervisor())
}

/// Whether CPUID exits to a hypervisor. It does not in QEMU's software translation, which has no
/// guest mode.
pub fn exits() -> bool {
    let translated =
        CpuId::new().get_hypervisor_info().is_some_and(|h| h.identify() == Hypervisor::QEMU);
    virtualised() && !translated
}

#[derive(Default)]
struct Facts(Vec<Fact>);

impl Facts {
    fn add(&mut self, group: &str, name: &str, value: Option<String>) {
        let value = value.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        if let Some(value) = value {
            self.0.push(Fact { group: group.into(), name: name.into(), value });
        }
    }
}

fn file(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

/// The value after `key` in lines of the form `key : value`.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(k, _)| k.trim() == key)
        .map(|(_, v)| v.trim().to_owned())
}

fn processor(facts: &mut Facts) {
    let id = CpuId::new();
    let brand = id.get_processor_brand_string().map(|b| b.as_str().to_owned());
    let vendor = id.get_vendor_info().map(|v| v.as_str().to_owned());
    facts.add("cpu", "model", brand.or(vendor));
    if let Some(f) = id.get_feature_info() {
        let (family, model) = (f.family_id(), f.model_id());
        facts.add(
            "cpu",
            "family, model, stepping",
            Some(format!("{family}, {model}, {}", f.stepping_id())),
        );
    }
    let info = file("/proc/cpuinfo").unwrap_or_default();
    facts.add("cpu", "microcode", field(&info, "microcode"));
    facts.add("cpu", "processors", Some(crate::sys::cpus().to_string()));
    let invariant = id.get_advanced_power_mgmt_info().is_some_and(|a| a.has_invariant_tsc());
    facts.add("cpu", "invariant TSC", Some(if invariant { "yes" } else { "no" }.into()));
    let governor = file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    facts.add("cpu", "governor", governor.or(Some("not shown".into())));
    if virtualised() {
        let name = id.get_hypervisor_info().map(|h| format!("{:?}", h.identify()));
        facts.add("cpu", "hypervisor", name.or(Some("unknown".into())));
    } else {
        facts.add("cpu", "hypervisor", Some("none".into()));
    }
}

/// The data caches by /sys, and where that is missing by CPUID.
fn caches() -> Vec<Cache> {
    let mut found = caches_by_sys();
    if found.is_empty() {
        found = caches_by_cpuid();
    }
    found.sort_by_key(|c| c.level);
    found.dedup_by_key(|c| c.level);
    found
}

fn caches_by_sys() -> Vec<Cache> {
    (0..8)
        .filter_map(|index| {
            let base = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
            let read = |name: &str| file(&format!("{base}/{name}"));
            if read("type")? == "Instruction" {
                return None;
            }
            Some(Cache {
                level: read("level")?.parse().ok()?,
                bytes: parse_size(&read("size")?).filter(|b| *b > 0)?,
                line: read("coherency_line_size")?.parse().ok()?,
                source: "/sys".into(),
            })
        })
        .collect()
}

fn caches_by_cpuid() -> Vec<Cache> {
    let Some(parameters) = CpuId::new().get_cache_parameters() else { return Vec::new() };
    parameters
        .filter(|c| matches!(c.cache_type(), CacheType::Data | CacheType::Unified))
        .map(|c| Cache {
            level: u32::from(c.level()),
            bytes: (c.associativity()
                * c.physical_line_partitions()
                * c.coherency_line_size()
                * c.sets()) as u64,
            line: c.coherency_line_size() as u64,
            source: "CPUID".into(),
        })
        .filter(|c| c.bytes > 0)
        .collect()
}

/// Memory in bytes by sysinfo(2).
pub fn memory_size() -> Option<u64> {
    // SAFETY: sysinfo is plain data, filled in by the kernel.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: writes one struct sysinfo.
    let asked = unsafe { libc::sysinfo(&mut info) } == 0;
    (asked && info.totalram > 0).then(|| info.totalram * u64::from(info.mem_unit.max(1)))
}

fn memory(facts: &mut Facts) {
    facts.add("memory", "size", memory_size().map(|b| size(b as f64)));
    let chosen = |text: String| {
        text.split_whitespace()
            .find_map(|w| w.strip_prefix('[')?.strip_suffix(']').map(str::to_owned))
    };
    let huge = file("/sys/kernel/mm/transparent_hugepage/enabled").and_then(chosen);
    facts.add("memory", "transparent huge pages", huge);
    let swap = file("/proc/meminfo").and_then(|t| field(&t, "SwapTotal"));
    facts.add("memory", "swap", swap);
}

fn kernel(facts: &mut Facts) {
    // SAFETY: utsname is plain data, filled in by the kernel.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: writes one struct utsname.
    if unsafe { libc::uname(&mut names) } == 0 {
        let text = |field: &[libc::c_char]| {
            let bytes: Vec<u8> = field.iter().map(|c| *c as u8).collect();
            CStr::from_bytes_until_nul(&bytes).ok().map(|s| s.to_string_lossy().into_owned())
        };
        facts.add("kernel", "system", text(&names.sysname));
        facts.add("kernel", "release", text(&names.release));
        facts.add("kernel", "version", text(&names.version));
    }
    let clock = file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    facts.add("kernel", "clock source", clock);
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return };
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let mitigations: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let state = file(&format!("/sys/devices/system/cpu/vulnerabilities/{name}"))?;
            (state != "Not affected").then(|| format!("{name}: {state}"))
        })
        .collect();
    let text = if mitigations.is_empty() { "none needed".into() } else { mitigations.join("; ") };
    facts.add("kernel", "mitigations", Some(text));
}

/// The device and file system below `directory`, by the longest matching mount point.
fn disk(facts: &mut Facts, directory: &Path) {
    facts.add("disk", "directory", Some(directory.display().to_string()));
    let Some(mounts) = file("/proc/self/mounts") else { return };
    let absolute = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let best = mounts
        .lines()
        .filter_map(|l| {
            let mut fields = l.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
        .filter(|(_, place, _)| absolute.starts_with(place))
        .max_by_key(|(_, place, _)| place.len());
    let Some((device, _, kind)) = best else { return };
    facts.add("disk", "file system", Some(kind.to_owned()));
    facts.add("disk", "device", Some(device.to_owned()));
    let Some(name) = device.strip_prefix("/dev/") else { return };
    // A partition has no queue of its own; its disk is the directory above it.
    let Ok(real) = fs::canonicalize(format!("/sys/class/block/{name}")) else { return };
    let disk = if real.join("queue").exists() { real } else { real.join("..") };
    let read = |what: &str| file(&disk.join(what).to_string_lossy());
    facts.add("disk", "model", read("device/model"));
    let turns = read("queue/rotational").map(|r| if r == "1" { "yes" } else { "no" }.to_owned());
    facts.add("disk", "rotational", turns);
    facts.add("disk", "scheduler", read("queue/scheduler"));
}

fn network(facts: &mut Facts) {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return };
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    for name in names.iter().filter(|n| *n != "lo") {
        let read = |what: &str| file(&format!("/sys/class/net/{name}/{what}"));
        let driver = fs::read_link(format!("/sys/class/net/{name}/device/driver"))
            .ok()
            .and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
        let speed = read("speed").filter(|s| !s.starts_with('-')).map(|s| format!("{s} Mbit/s"));
        let parts = [driver, speed, read("mtu").map(|m| format!("MTU {m}"))];
        let about: Vec<String> = parts.into_iter().flatten().collect();
        facts.add("network", name, Some(about.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text = "a : 1\nmicrocode\t: 0x5\nSwapTotal:   0 kB";
        assert_eq!(field(text, "microcode").as_deref(), Some("0x5"));
        assert_eq!(field(text, "SwapTotal").as_deref(), Some("0 kB"));
        assert_eq!(field(text, "b"), None);
    }

    #[test]
    fn this_machine() {
        let machine = machine(Path::new("/tmp"));
        assert!(machine.fact("cpu", "model").is_some());
        assert!(machine.fact("kernel", "release").is_some());
        // CPUID and /sys report the same first level if both report one.
        let (a, b) = (caches_by_sys(), caches_by_cpuid());
        if let (Some(a), Some(b)) = (a.first(), b.first()) {
            assert_eq!((a.level, a.bytes, a.line), (b.level, b.bytes, b.line));
        }
    }
}
