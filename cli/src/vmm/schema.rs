//! The formats that the monitors publish, as far as the objects in them are used here: the names of
//! all fields of these objects, their types, and which are required. A field that is not listed is
//! an error, which it is for Firecracker, too (`deny_unknown_fields`).
//!
//! Taken from the projects' OpenAPI documents:
//! * Firecracker, `src/firecracker/swagger/firecracker.yaml`, commit 004d935399ba (after 1.13);
//! * Cloud Hypervisor, `vmm/src/api/openapi/cloud-hypervisor.yaml`, commit 00f68228812d.
//!
//! Objects whose fields are not listed are empty here: a value in them is an error, so that whoever
//! uses one has to look it up.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The type of a field.
#[derive(Clone, Copy)]
pub enum Type {
    Text,
    Flag,
    /// A whole number, with its least and greatest value.
    Number(u64, u64),
    OneOf(&'static [&'static str]),
    Object(&'static str),
    List(&'static str),
}

use Type::{Flag, List, Number, Object, OneOf, Text};

const ANY: Type = Number(0, u64::MAX);

/// A field: its name, whether it is required, its type.
type Field = (&'static str, bool, Type);

/// The objects of a format.
pub struct Schema(&'static [(&'static str, &'static [Field])]);

impl Schema {
    /// Checks a value against the object of this name.
    pub fn check(&self, name: &str, value: &Value) -> Result<()> {
        let found = self.0.iter().find(|(object, _)| *object == name);
        let (_, fields) = found.with_context(|| format!("there is no object {name}"))?;
        let given = value.as_object().with_context(|| format!("{name} is no object: {value}"))?;
        for (field, value) in given {
            let known = fields.iter().find(|(known, _, _)| known == field);
            let (_, _, kind) = known.with_context(|| format!("{name} has no field {field}"))?;
            self.check_type(*kind, value).with_context(|| format!("{name}.{field}"))?;
        }
        for (field, required, _) in *fields {
            ensure!(!required || given.contains_key(*field), "{name} lacks {field}");
        }
        Ok(())
    }

    fn check_type(&self, kind: Type, value: &Value) -> Result<()> {
        let fits = match kind {
            Text => value.is_string(),
            Flag => value.is_boolean(),
            Number(least, most) => value.as_u64().is_some_and(|n| (least..=most).contains(&n)),
            OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Object(name) => return self.check(name, value),
            List(name) => {
                let items = value.as_array().context("it is no list")?;
                return items.iter().try_for_each(|item| self.check(name, item));
            }
        };
        if fits { Ok(()) } else { bail!("{value} is not of its type") }
    }
}

pub const FIRECRACKER: Schema = Schema(&[
    (
        "FullVmConfiguration",
        &[
            ("balloon", false, Object("Balloon")),
            ("boot-source", false, Object("BootSource")),
            ("cpu-config", false, Object("CpuConfig")),
            ("drives", false, List("Drive")),
            ("entropy", false, Object("EntropyDevice")),
            ("logger", false, Object("Logger")),
            ("machine-config", false, Object("MachineConfiguration")),
            ("memory-hotplug", false, Object("MemoryHotplugConfig")),
            ("metrics", false, Object("Metrics")),
            ("mmds-config", false, Object("MmdsConfig")),
            ("network-interfaces", false, List("NetworkInterface")),
            ("pmem", false, List("Pmem")),
            ("vsock", false, Object("Vsock")),
        ],
    ),
    (
        "Balloon",
        &[
            ("amount_mib", true, ANY),
            ("deflate_on_oom", true, Flag),
            ("free_page_hinting", false, Flag),
            ("free_page_reporting", false, Flag),
            ("stats_polling_interval_s", false, ANY),
        ],
    ),
    (
        "BootSource",
        &[
            ("boot_args", false, Text),
            ("initrd_path", false, Text),
            ("kernel_image_path", true, Text),
        ],
    ),
    (
        "Drive",
        &[
            ("cache_type", false, OneOf(&["Unsafe", "Writeback"])),
            ("drive_id", true, Text),
            ("io_engine", false, OneOf(&["Sync", "Async"])),
            ("is_read_only", false, Flag),
            ("is_root_device", true, Flag),
            ("partuuid", false, Text),
            ("path_on_host", false, Text),
            ("rate_limiter", false, Object("RateLimiter")),
            ("socket", false, Text),
        ],
    ),
    ("EntropyDevice", &[("rate_limiter", false, Object("RateLimiter"))]),
    (
        "MachineConfiguration",
        &[
            ("cpu_template", false, Text),
            ("huge_pages", false, OneOf(&["None", "Transparent", "2M"])),
            ("mem_size_mib", true, ANY),
            ("smt", false, Flag),
            ("track_dirty_pages", false, Flag),
            ("vcpu_count", true, Number(1, 32)),
        ],
    ),
    (
        "NetworkInterface",
        &[
            ("guest_mac", false, Text),
            ("host_dev_name", true, Text),
            ("iface_id", true, Text),
            ("mtu", false, Number(68, 65535)),
            ("rx_rate_limiter", false, Object("RateLimiter")),
            ("tx_rate_limiter", false, Object("RateLimiter")),
        ],
    ),
    (
        "Vsock",
        &[
            ("guest_cid", true, Number(3, u32::MAX as u64)),
            ("uds_path", true, Text),
            ("vsock_id", false, Text),
        ],
    ),
    ("RateLimiter", &[]),
]);

/// The fields by which Cloud Hypervisor places a device.
macro_rules! placed {
    ($($field:expr),* $(,)?) => {
        &[
            ("id", false, Text),
            ("iommu", false, Flag),
            ("pci_segment", false, Number(0, 32767)),
            ("pci_device_id", false, Number(0, 255)),
            $($field),*
        ]
    };
}

const MODE: Type = OneOf(&["Off", "Pty", "Tty", "File", "Socket", "Null"]);

pub const CLOUD_HYPERVISOR: Schema = Schema(&[
    (
        "VmConfig",
        &[
            ("balloon", false, Object("BalloonConfig")),
            ("console", false, Object("ConsoleConfig")),
            ("cpus", false, Object("CpusConfig")),
            ("disks", false, List("DiskConfig")),
            ("iommu", false, Flag),
            ("landlock_enable", false, Flag),
            ("memory", false, Object("MemoryConfig")),
            ("net", false, List("NetConfig")),
            ("payload", true, Object("PayloadConfig")),
            ("pvpanic", false, Flag),
            ("rng", false, Object("RngConfig")),
            ("serial", false, Object("SerialConfig")),
            ("vsock", false, Object("VsockConfig")),
            ("watchdog", false, Flag),
        ],
    ),
    (
        "BalloonConfig",
        placed![
            ("deflate_on_oom", false, Flag),
            ("free_page_reporting", false, Flag),
            ("size", true, ANY),
        ],
    ),
    (
        "ConsoleConfig",
        placed![("file", false, Text), ("mode", true, MODE), ("socket", false, Text),],
    ),
    (
        "CpusConfig",
        &[
            ("boot_vcpus", true, Number(1, u64::MAX)),
            ("core_scheduling", false, OneOf(&["Vm", "Vcpu", "Off"])),
            ("kvm_hyperv", false, Flag),
            ("max_phys_bits", false, ANY),
            ("max_vcpus", true, Number(1, u64::MAX)),
            ("nested", false, Flag),
        ],
    ),
    (
        "DiskConfig",
        placed![
            ("backing_files", false, Flag),
            ("direct", false, Flag),
            (
                "image_type",
                false,
                OneOf(&["FlatVmdk", "FixedVhd", "Qcow2", "Raw", "Vhdx", "Unknown"])
            ),
            ("lock_granularity", false, OneOf(&["ByteRange", "Full"])),
            ("num_queues", false, ANY),
            ("path", false, Text),
            ("queue_size", false, ANY),
            ("rate_limit_group", false, Text),
            ("readonly", false, Flag),
            ("serial", false, Text),
            ("sparse", false, Flag),
            ("vhost_socket", false, Text),
            ("vhost_user", false, Flag),
        ],
    ),
    (
        "MemoryConfig",
        &[
            ("hotplug_method", false, Text),
            ("hotplug_size", false, ANY),
            ("hotplugged_size", false, ANY),
            ("hugepage_size", false, ANY),
            ("hugepages", false, Flag),
            ("mergeable", false, Flag),
            ("prefault", false, Flag),
            ("reserve", false, Flag),
            ("shared", false, Flag),
            ("size", true, ANY),
            ("thp", false, Flag),
        ],
    ),
    (
        "NetConfig",
        placed![
            ("host_mac", false, Text),
            ("ip", false, Text),
            ("mac", false, Text),
            ("mask", false, Text),
            ("mtu", false, ANY),
            ("num_queues", false, ANY),
            ("offload_csum", false, Flag),
            ("offload_tso", false, Flag),
            ("offload_ufo", false, Flag),
            ("queue_size", false, ANY),
            ("tap", false, Text),
            ("vhost_mode", false, Text),
            ("vhost_socket", false, Text),
            ("vhost_user", false, Flag),
        ],
    ),
    (
        "PayloadConfig",
        &[
            ("cmdline", false, Text),
            ("firmware", false, Text),
            ("host_data", false, Text),
            ("igvm", false, Text),
            ("initramfs", false, Text),
            ("kernel", false, Text),
        ],
    ),
    ("RngConfig", placed![("src", true, Text)]),
    ("SerialConfig", &[("file", false, Text), ("mode", true, MODE), ("socket", false, Text)]),
    ("VsockConfig", placed![("cid", true, Number(3, u64::MAX)), ("socket", true, Text),]),
]);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong_is_found() {
        let good = json!({ "kernel_image_path": "/kernel" });
        FIRECRACKER.check("BootSource", &good).unwrap();
        for bad in [
            json!({}),
            json!([]),
            json!({ "kernel_image_path": 7 }),
            json!({ "kernel_image_path": "/kernel", "kernel": "/kernel" }),
        ] {
            assert!(FIRECRACKER.check("BootSource", &bad).is_err(), "{bad}");
        }
        let cpus = |n: u64| json!({ "boot_vcpus": n, "max_vcpus": 4 });
        CLOUD_HYPERVISOR.check("CpusConfig", &cpus(4)).unwrap();
        assert!(CLOUD_HYPERVISOR.check("CpusConfig", &cpus(0)).is_err());
        let mode = |mode: &str| json!({ "payload": {}, "serial": { "mode": mode } });
        CLOUD_HYPERVISOR.check("VmConfig", &mode("Tty")).unwrap();
        assert!(CLOUD_HYPERVISOR.check("VmConfig", &mode("tty")).is_err());
        assert!(CLOUD_HYPERVISOR.check("Nothing", &good).is_err());
        // An object whose fields are not listed may have none.
        let limited = json!({ "rate_limiter": { "ops": {} } });
        assert!(FIRECRACKER.check("EntropyDevice", &limited).is_err());
    }
}
