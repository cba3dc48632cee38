//! Cloud Hypervisor: the body of its request `vm.create`.
//!
//! Its machines have a PCI bus with virtio devices and MSI-X, a serial line and ACPI, and start
//! kernels by their PVH note. It takes a network interface of the host, no network of its own. Its
//! console is a virtio console with one port.

use super::{Description, GUEST, Vmm};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// Cloud Hypervisor.
pub struct CloudHypervisor;

impl Vmm for CloudHypervisor {
    fn program(&self) -> &'static str {
        "cloud-hypervisor"
    }

    fn configuration(&self, machine: &Description) -> Result<Value> {
        let disks = machine.disks.iter().enumerate();
        let disks = disks.map(
            |(index, disk)| json!({ "id": format!("disk{index}"), "path": disk, "readonly": true }),
        );
        let mut value = json!({
            "payload": {
                "kernel": machine.kernel,
                "initramfs": machine.initramfs,
                "cmdline": machine.words,
            },
            "cpus": { "boot_vcpus": machine.cpus, "max_vcpus": machine.cpus },
            "memory": { "size": machine.memory << 20 },
            "disks": disks.collect::<Vec<_>>(),
            "rng": { "src": "/dev/urandom" },
            "serial": { "mode": "File", "file": machine.log },
            "console": { "mode": "Off" },
            "vsock": { "cid": GUEST, "socket": machine.socket },
            "balloon": { "size": 0, "deflate_on_oom": true, "free_page_reporting": true },
        });
        if let Some((name, mac)) = &machine.tap {
            let mut interface = json!({ "id": "net", "tap": name });
            if let Some(mac) = mac {
                interface["mac"] = json!(mac);
            }
            value["net"] = json!([interface]);
        }
        Ok(value)
    }

    fn commands(&self, configuration: &Path) -> Vec<String> {
        let socket = configuration.with_file_name("api");
        let socket = socket.display();
        vec![
            format!("cloud-hypervisor --api-socket path={socket} &"),
            format!("ch-remote --api-socket {socket} create {}", configuration.display()),
            format!("ch-remote --api-socket {socket} boot"),
        ]
    }

    fn lacks(&self) -> &'static [&'static str] {
        &[
            "virtio-vsock: its virtio console has one port, and Hayate's init needs several for \
             its job's streams, signals and status; the kernel has no driver for it and no \
             AF_VSOCK, and init does not speak by it",
            "a run on this project's hosts, whose KVM does not work: it needs one (or Microsoft's \
             hypervisor), and Hayate was never booted in it",
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{example, schema};
    use super::*;

    #[test]
    fn the_configuration_is_what_cloud_hypervisor_reads() {
        for cpus in [1, 3, 16] {
            let value = CloudHypervisor.configuration(&example(cpus)).unwrap();
            schema::CLOUD_HYPERVISOR.check("VmConfig", &value).unwrap();
            assert_eq!(value["memory"]["size"], 512_u64 << 20);
            assert_eq!(value["disks"][0]["readonly"], true);
            assert_eq!(value["net"][0]["tap"], "tap0");
        }
        let without = Description { tap: None, disks: Vec::new(), ..example(1) };
        let value = CloudHypervisor.configuration(&without).unwrap();
        schema::CLOUD_HYPERVISOR.check("VmConfig", &value).unwrap();
    }
}
