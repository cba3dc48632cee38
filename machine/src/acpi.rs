//! The ACPI tables the kernel needs: MADT (CPUs, I/O APICs), FADT (power off, PM timer), MCFG, NFIT
//! (non-volatile memory).
//!
//! Read by hand in a hundred lines instead of by the `acpi` crate: there are four fixed tables, and
//! every length here is checked against the table that it came from. There is no AML interpreter,
//! so devices use MSI-X. Without ACPI there is one CPU, the customary I/O APIC, and no power off by
//! ACPI.

use arrayvec::ArrayVec;

use crate::cpu::MAX_CPUS;
use crate::layout::DIRECT_MAP;
use crate::loader;
use crate::sync::Once;

/// An I/O APIC.
#[derive(Clone, Copy, Debug)]
pub struct IoApic {
    /// Physical address of its registers.
    pub address: u64,
    /// The first global interrupt line it serves.
    pub first_line: u32,
}

/// An ISA interrupt whose global line differs from its number.
#[derive(Clone, Copy, Debug)]
pub struct Override {
    /// The ISA interrupt.
    pub source: u8,
    /// Its global line.
    pub line: u32,
}

/// The content of the tables.
#[derive(Debug, Default)]
pub struct AcpiInfo {
    /// APIC identifiers of the usable CPUs, in table order.
    pub cpus: ArrayVec<u32, MAX_CPUS>,
    /// I/O APICs.
    pub io_apics: ArrayVec<IoApic, 8>,
    /// ISA overrides.
    pub overrides: ArrayVec<Override, 16>,
    /// Whether a PCI bus has its configuration space in memory.
    pub has_ecam: bool,
    /// The PM timer's port.
    pub pm_timer: Option<u16>,
    /// The PM1a control port, and the sleep type that switches the machine off (S5).
    pub off: Option<(u16, u8)>,
    /// Ranges of non-volatile memory: the first byte, and one past the last.
    pub persistent: ArrayVec<(u64, u64), 4>,
}

static INFO: Once<AcpiInfo> = Once::new();

/// Returns the content of the tables; parsed at first use.
pub fn info() -> &'static AcpiInfo {
    INFO.call_once(parse)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns a whole table by its address, if it is in mapped memory, of plausible length, and sums
/// to zero.
fn table(address: u64) -> Option<&'static [u8]> {
    let header = loader::firmware_bytes(address, 36)?;
    let length = u32_at(header, 4)? as usize;
    if !(36..1 << 20).contains(&length) {
        return None;
    }
    let bytes = loader::firmware_bytes(address, length)?;
    (bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)) == 0).then_some(bytes)
}

fn rsdp() -> Option<u64> {
    let valid = |address: u64| {
        let bytes = loader::firmware_bytes(address, 20)?;
        (bytes.starts_with(b"RSD PTR ") && bytes.iter().fold(0u8, |s, b| s.wrapping_add(*b)) == 0)
            .then_some(address)
    };
    if let Some(found) = loader::info().rsdp.and_then(valid) {
        return Some(found);
    }
    (0xe_0000..0x10_0000).step_by(16).find_map(valid)
}

fn parse() -> AcpiInfo {
    let mut info = AcpiInfo::default();
    let _ = parse_root(&mut info);
    if info.io_apics.is_empty() {
        info.io_apics.push(IoApic { address: 0xfec0_0000, first_line: 0 });
    }
    info
}

fn parse_root(info: &mut AcpiInfo) -> Option<()> {
    let rsdp = loader::firmware_bytes(rsdp()?, 20)?;
    let revision = rsdp[15];
    let extended = loader::firmware_bytes((rsdp.as_ptr() as usize - DIRECT_MAP) as u64, 36)
        .filter(|_| revision >= 2)
        .and_then(|bytes| u64_at(bytes, 24))
        .filter(|address| *address != 0);
    let (root, width) = match extended {
        Some(address) => (table(address)?, 8),
        None => (table(u64::from(u32_at(rsdp, 16)?))?, 4),
    };
    for entry in root[36..].chunks_exact(width) {
        let address = if width == 8 { u64_at(entry, 0)? } else { u64::from(u32_at(entry, 0)?) };
        let Some(bytes) = table(address) else { continue };
        let _ = match &bytes[..4] {
            b"APIC" => parse_madt(bytes, info),
            b"FACP" => parse_fadt(bytes, info),
            b"MCFG" => parse_mcfg(bytes, info),
            b"NFIT" => parse_nfit(bytes, info),
            _ => Some(()),
        };
    }
    Some(())
}

fn parse_madt(bytes: &[u8], info: &mut AcpiInfo) -> Option<()> {
    let mut rest = bytes.get(44..)?;
    while rest.len() >= 2 {
        let length = usize::from(rest[1]);
        if length < 2 || length > rest.len() {
            break;
        }
        let (entry, after) = rest.split_at(length);
        rest = after;
        let _ = parse_madt_entry(entry, info);
    }
    Some(())
}

fn parse_madt_entry(entry: &[u8], info: &mut AcpiInfo) -> Option<()> {
    match entry[0] {
        // Local APIC or x2APIC. Only an enabled one counts, not one that could be enabled (bit 1).
        0 if u32_at(entry, 4)? & 1 != 0 => {
            let _ = info.cpus.try_push(u32::from(entry[3]));
        }
        9 if u32_at(entry, 8)? & 1 != 0 => {
            let id = u32_at(entry, 4)?;
            if !info.cpus.contains(&id) {
                let _ = info.cpus.try_push(id);
            }
        }
        1 => {
            let address = u64::from(u32_at(entry, 4)?);
            let _ = info.io_apics.try_push(IoApic { address, first_line: u32_at(entry, 8)? });
        }
        2 => {
            let _ = info.overrides.try_push(Override { source: entry[3], line: u32_at(entry, 4)? });
        }
        _ => {}
    }
    Some(())
}

fn parse_mcfg(bytes: &[u8], info: &mut AcpiInfo) -> Option<()> {
    info.has_ecam = bytes.get(44..)?.len() >= 16;
    Some(())
}

/// Reads the ranges of byte-addressable persistent memory in the NVDIMM Firmware Interface Table
/// (ACPI 6.5, 5.2.25.2: system physical address range structures).
fn parse_nfit(bytes: &[u8], info: &mut AcpiInfo) -> Option<()> {
    /// 66f0d379-b4f3-4074-ac43-0d3318b78cdb, in the byte order of tables.
    const PERSISTENT: [u8; 16] = [
        0x79, 0xd3, 0xf0, 0x66, 0xf3, 0xb4, 0x74, 0x40, 0xac, 0x43, 0x0d, 0x33, 0x18, 0xb7, 0x8c,
        0xdb,
    ];
    let mut rest = bytes.get(40..)?;
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 2)?);
        if length < 4 || length > rest.len() {
            break;
        }
        let (entry, after) = rest.split_at(length);
        rest = after;
        if u16_at(entry, 0)? == 0 && entry.get(16..32) == Some(&PERSISTENT[..]) {
            let (start, size) = (u64_at(entry, 32)?, u64_at(entry, 40)?);
            if let Some(end) = start.checked_add(size) {
                let _ = info.persistent.try_push((start, end));
            }
        }
    }
    Some(())
}

fn parse_fadt(bytes: &[u8], info: &mut AcpiInfo) -> Option<()> {
    let timer = u32_at(bytes, 76)?;
    info.pm_timer = u16::try_from(timer).ok().filter(|port| *port != 0);
    let pm1a = u16::try_from(u32_at(bytes, 64)?).ok().filter(|port| *port != 0)?;
    let dsdt = table(u64::from(u32_at(bytes, 40)?))?;
    // The S5 package in the DSDT: NameOp "_S5_" PackageOp PkgLength NumElements SLP_TYPa.
    let at = dsdt.windows(5).position(|w| w == b"_S5_\x12")? + 5;
    let length_bytes = usize::from(*dsdt.get(at)? >> 6) + 1;
    let mut value = at + length_bytes + 1;
    if *dsdt.get(value)? == 0x0a {
        value += 1;
    }
    info.off = Some((pm1a, *dsdt.get(value)? & 7));
    Some(())
}
