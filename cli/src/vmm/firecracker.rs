//! Firecracker: `firecracker --config-file`.
//!
//! Its machines have virtio devices with memory-mapped registers, a serial line and no firmware.
//! Since version 1.12 it starts kernels by their PVH note, as QEMU does. It takes a network
//! interface of the host, no network of its own, and one or an even number of processors.

use super::{Description, GUEST, Vmm};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::path::Path;

/// Firecracker, 1.12 or later.
pub struct Firecracker;

impl Vmm for Firecracker {
    fn program(&self) -> &'static str {
        "firecracker"
    }

    fn configuration(&self, machine: &Description) -> Result<Value> {
        if machine.cpus != 1 && !machine.cpus.is_multiple_of(2) {
            bail!(
                "firecracker has machines with one or an even number of processors: say --cpus {}",
                machine.cpus + 1
            );
        }
        let disks = machine.disks.iter().enumerate().map(|(index, disk)| {
            json!({
                "drive_id": format!("disk{index}"),
                "path_on_host": disk,
                // A root device would add words for Linux to the command line.
                "is_root_device": false,
                "is_read_only": true,
            })
        });
        let mut value = json!({
            "boot-source": {
                "kernel_image_path": machine.kernel,
                "initrd_path": machine.initramfs,
                "boot_args": machine.words,
            },
            "machine-config": { "vcpu_count": machine.cpus, "mem_size_mib": machine.memory },
            "drives": disks.collect::<Vec<_>>(),
            "entropy": {},
            "vsock": { "guest_cid": GUEST, "uds_path": machine.socket },
            "balloon": { "amount_mib": 0, "deflate_on_oom": true, "free_page_reporting": true },
        });
        if let Some((name, mac)) = &machine.tap {
            let mut interface = json!({ "iface_id": "net", "host_dev_name": name });
            if let Some(mac) = mac {
                interface["guest_mac"] = json!(mac);
            }
            value["network-interfaces"] = json!([interface]);
        }
        Ok(value)
    }

    fn commands(&self, configuration: &Path) -> Vec<String> {
        vec![format!("firecracker --no-api --config-file {}", configuration.display())]
    }

    fn lacks(&self) -> &'static [&'static str] {
        &[
            "virtio-vsock: it has no virtio-serial ports, by which Hayate's init gets its job's \
             streams, signals and status; the kernel has no driver for it and no AF_VSOCK, and \
             init does not speak by it",
            "a run on this project's hosts, whose KVM does not work: it needs one, and Hayate was \
             never booted in it (its clock without an ACPI timer and its devices' places are \
             untried)",
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{example, schema};
    use super::*;

    #[test]
    fn the_configuration_is_what_firecracker_reads() {
        for cpus in [1, 2, 16] {
            let value = Firecracker.configuration(&example(cpus)).unwrap();
            schema::FIRECRACKER.check("FullVmConfiguration", &value).unwrap();
            assert_eq!(value["machine-config"]["vcpu_count"], cpus);
            assert_eq!(value["drives"][1]["path_on_host"], "/build/with.ext4");
            assert_eq!(value["network-interfaces"][0]["guest_mac"], "52:54:00:12:34:56");
        }
        let without = Description { tap: None, disks: Vec::new(), ..example(4) };
        let value = Firecracker.configuration(&without).unwrap();
        schema::FIRECRACKER.check("FullVmConfiguration", &value).unwrap();
        assert!(value.get("network-interfaces").is_none());
        assert!(Firecracker.configuration(&example(3)).is_err());
    }
}
