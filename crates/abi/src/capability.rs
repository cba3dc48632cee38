//! What a file says about the capabilities of its program: the attribute `security.capability`
//! (`capabilities(7)`, "File capabilities"; `struct vfs_ns_cap_data`,
//! include/uapi/linux/capability.h).

const REVISION: u32 = 0xff00_0000;
const EFFECTIVE: u32 = 1;

/// The capabilities of a file, as sets of one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCapabilities {
    /// What the program has, as far as the bounding set allows.
    pub permitted: u64,
    /// What the program has if its caller's inheritable set has it too.
    pub inheritable: u64,
    /// Whether they are in effect from the first instruction.
    pub effective: bool,
    /// The user that is root in the user namespace in which this counts.
    pub root: u32,
}

impl FileCapabilities {
    /// Reads the attribute's value, of any revision that Linux 6.1 knows
    /// (`get_vfs_caps_from_disk`, security/commoncap.c). `None` if its form is another.
    pub fn read(value: &[u8]) -> Option<FileCapabilities> {
        let word = |index: usize| {
            let bytes = value.get(4 * index..4 * index + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let first = word(0)?;
        let words = match (first & REVISION, value.len()) {
            (0x0100_0000, 12) => 1,
            (0x0200_0000, 20) | (0x0300_0000, 24) => 2,
            _ => return None,
        };
        // Pairs of permitted and inheritable, the low words first.
        let set = |at: usize| {
            let high = if words == 2 { word(at + 2)? } else { 0 };
            Some(u64::from(word(at)?) | u64::from(high) << 32)
        };
        Some(FileCapabilities {
            permitted: set(1)?,
            inheritable: set(2)?,
            effective: first & EFFECTIVE != 0,
            root: word(5).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::FileCapabilities;
    use std::vec::Vec;

    fn value(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn every_revision_is_read() {
        let read = |words: &[u32]| FileCapabilities::read(&value(words));
        let sets = |permitted, inheritable, effective, root| {
            Some(FileCapabilities { permitted, inheritable, effective, root })
        };
        assert_eq!(read(&[0x0100_0001, 1, 2]), sets(1, 2, true, 0));
        assert_eq!(read(&[0x0200_0000, 1, 2, 3, 4]), sets(3 << 32 | 1, 4 << 32 | 2, false, 0));
        assert_eq!(read(&[0x0300_0001, 1, 0, 0, 0, 1000]), sets(1, 0, true, 1000));
    }

    #[test]
    fn other_forms_are_refused() {
        for words in [
            &[][..],
            &[0x0200_0000],
            &[0x0100_0000, 0, 0, 0, 0],
            &[0x0200_0000, 0, 0],
            &[0x0200_0000, 0, 0, 0, 0, 0],
            &[0x0300_0000, 0, 0, 0, 0],
            &[0x0400_0000, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0],
        ] {
            assert_eq!(FileCapabilities::read(&value(words)), None, "{words:x?}");
        }
        assert_eq!(FileCapabilities::read(&value(&[0x0200_0000, 0, 0, 0, 0])[..19]), None);
    }
}
