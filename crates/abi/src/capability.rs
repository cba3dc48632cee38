//! What a file says about the capabilities of its program: the attribute `security.capability`
//! (`capabilities(7)`, "File capabilities"; `struct vfs_ns_cap_data`,
//! include/uapi/linux/capability.h).

const REVISION: u32 = 0xff00_0000;
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
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
            (REVISION_2, 20) | (REVISION_3, 24) => 2,
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

    /// The value of the attribute that says this, for the superuser of the user namespace in which
    /// `root` is.
    pub fn value_for(&self, root: u32) -> [u8; 24] {
        let mut value = [0; 24];
        let words = [REVISION_3 | self.first_bits(), 0, 0, 0, 0, root];
        self.fill(&mut value, &words);
        value
    }

    /// The value of the attribute that says this, for the superuser of the machine or of the
    /// reader.
    pub fn value(&self) -> [u8; 20] {
        let mut value = [0; 20];
        self.fill(&mut value, &[REVISION_2 | self.first_bits(), 0, 0, 0, 0]);
        value
    }

    fn first_bits(&self) -> u32 {
        if self.effective { EFFECTIVE } else { 0 }
    }

    /// Fills a value with these words, and with the sets from the second on.
    fn fill(&self, value: &mut [u8], words: &[u32]) {
        let low = |set: u64| set as u32;
        let sets = [self.permitted, self.inheritable];
        let sets = sets.map(low).into_iter().chain(sets.map(|set| low(set >> 32)));
        let words = words[..1].iter().copied().chain(sets).chain(words[5..].iter().copied());
        for (to, word) in value.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
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
    fn what_is_written_is_read() {
        let own =
            FileCapabilities { permitted: 3 << 32 | 1, inheritable: 4, effective: true, root: 7 };
        assert_eq!(FileCapabilities::read(&own.value_for(7)), Some(own));
        assert_eq!(own.value_for(7)[..], value(&[0x0300_0001, 1, 4, 3, 0, 7]));
        let plain = FileCapabilities { effective: false, root: 0, ..own };
        assert_eq!(FileCapabilities::read(&plain.value()), Some(plain));
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
