//! Memory policies: on which nodes a thread or a mapping wants its memory (`set_mempolicy(2)`,
//! `mbind(2)`).
//!
//! The machine has one node, so a policy changes nothing but what is told of it. It is checked,
//! kept and told as Linux 6.1 does with `CONFIG_NUMA`, one node, and room for [`NODES`]
//! (`CONFIG_NODES_SHIFT=3`; mm/mempolicy.c).
//!
//! A policy is kept in 16 bits ([`Policy::pack`]), so that it fits into words that fork copies in
//! any case.
#![no_std]
#![forbid(unsafe_code)]

/// The most nodes that a mask can name (`MAX_NUMNODES`).
pub const NODES: usize = 8;

/// A set of nodes, a bit for each.
pub type Nodes = u8;

/// The nodes with memory.
pub const PRESENT: Nodes = 1;

/// The bits beside a mode (`MPOL_F_*`).
mod flag {
    pub const STATIC_NODES: i32 = 1 << 15;
    pub const RELATIVE_NODES: i32 = 1 << 14;
    pub const NUMA_BALANCING: i32 = 1 << 13;
    pub const ALL: i32 = STATIC_NODES | RELATIVE_NODES | NUMA_BALANCING;
}

/// How memory is chosen (`MPOL_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// There is no policy.
    Default,
    /// From one node first.
    Preferred,
    /// From these nodes only.
    Bind,
    /// From these nodes in turn.
    Interleave,
    /// From the node of the processor.
    Local,
    /// From these nodes first.
    PreferredMany,
}

const MODES: [Mode; 6] = [
    Mode::Default,
    Mode::Preferred,
    Mode::Bind,
    Mode::Interleave,
    Mode::Local,
    Mode::PreferredMany,
];

/// The arguments do not make a policy: `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// A mode and its flags, as a program asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The mode.
    pub mode: Mode,
    flags: i32,
}

impl Request {
    /// Reads the first argument of `set_mempolicy(2)` (`sanitize_mpol_flags`).
    pub fn read(given: i32) -> Result<Request, Invalid> {
        let flags = given & flag::ALL;
        let number = usize::try_from(given & !flag::ALL).map_err(|_| Invalid)?;
        let mode = *MODES.get(number).ok_or(Invalid)?;
        let both = flag::STATIC_NODES | flag::RELATIVE_NODES;
        let balances = flags & flag::NUMA_BALANCING != 0;
        if flags & both == both || (balances && mode != Mode::Bind) {
            return Err(Invalid);
        }
        Ok(Request { mode, flags })
    }

    fn has_user_nodes(self) -> bool {
        self.flags & (flag::STATIC_NODES | flag::RELATIVE_NODES) != 0
    }

    /// The policy for these nodes (`mpol_new`, `mpol_set_nodemask`); `None`: the default.
    pub fn policy(self, nodes: Nodes) -> Result<Option<Policy>, Invalid> {
        let mode = match (self.mode, nodes) {
            (Mode::Default, 0) => return Ok(None),
            (Mode::Default, _) => return Err(Invalid),
            (Mode::Preferred | Mode::Local, 0) if !self.has_user_nodes() => Mode::Local,
            (Mode::Local, _) | (_, 0) => return Err(Invalid),
            (mode, _) => mode,
        };
        let policy = |nodes| Some(Policy { mode, flags: self.flags, nodes, has_home: false });
        if mode == Mode::Local {
            return Ok(policy(0));
        }
        // Relative nodes count among those that are there, of which there is one.
        let effective =
            if self.flags & flag::RELATIVE_NODES != 0 { PRESENT } else { nodes & PRESENT };
        if effective == 0 {
            return Err(Invalid);
        }
        Ok(policy(if self.has_user_nodes() { nodes } else { effective }))
    }
}

/// A policy other than the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The mode.
    pub mode: Mode,
    flags: i32,
    nodes: Nodes,
    /// A node to begin with was set, which can only be the one (`set_mempolicy_home_node(2)`).
    has_home: bool,
}

const MODE: u16 = 7;
const FLAGS_AT: u32 = 3;
/// Where the first flag is in a mode.
const FLAGS_FROM: u32 = 13;
const HOME: u16 = 1 << 6;
const NODES_AT: u32 = 8;

/// The bit of a word that no policy uses.
pub const FREE: u16 = 1 << 7;

impl Policy {
    /// As `get_mempolicy(2)` tells it: the mode with its flags, and the nodes, which are those that
    /// were asked for if a flag says so.
    pub fn told(self) -> (i32, Nodes) {
        (self.mode as i32 | self.flags, self.nodes)
    }

    /// The policy with a node to begin with; `None`: it has no use for one.
    pub fn with_home(self) -> Option<Policy> {
        let takes = matches!(self.mode, Mode::Bind | Mode::PreferredMany);
        takes.then_some(Policy { has_home: true, ..self })
    }

    /// Packs a policy into a word, which is 0 for the default.
    pub fn pack(policy: Option<Policy>) -> u16 {
        policy.map_or(0, |policy| {
            let flags = (policy.flags >> FLAGS_FROM) as u16;
            policy.mode as u16
                | flags << FLAGS_AT
                | if policy.has_home { HOME } else { 0 }
                | u16::from(policy.nodes) << NODES_AT
        })
    }

    /// Unpacks a word that [`pack`](Self::pack) made.
    pub fn unpack(word: u16) -> Option<Policy> {
        let mode = *MODES.get(usize::from(word & MODE))?;
        (mode != Mode::Default).then(|| Policy {
            mode,
            flags: i32::from(word >> FLAGS_AT & 7) << FLAGS_FROM,
            nodes: (word >> NODES_AT) as Nodes,
            has_home: word & HOME != 0,
        })
    }
}

/// Why a mask of nodes cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError<E> {
    /// It is too long, or names a node beyond [`NODES`].
    Invalid,
    /// It cannot be read.
    Unreadable(E),
}

/// Reads a mask of nodes (`get_nodes`).
///
/// * `count` - the number that a program gives with it: of bits, and one more.
/// * `word` - reads a word of the mask; `None`: there is no mask.
pub fn read_nodes<E>(
    count: usize,
    word: Option<impl FnMut(usize) -> Result<u64, E>>,
) -> Result<Nodes, MaskError<E>> {
    const WORD: usize = 64;
    const MOST: usize = 4096 * 8;
    let mut bits = count.wrapping_sub(1);
    let Some(mut word) = word.filter(|_| bits != 0) else { return Ok(0) };
    if bits > MOST {
        return Err(MaskError::Invalid);
    }
    let mut read = |index: usize, bits: usize| {
        let value = word(index).map_err(MaskError::Unreadable)?;
        let rest = bits % WORD;
        Ok(if rest == 0 { value } else { value & ((1 << rest) - 1) })
    };
    // Bits beyond the nodes that there can be must be zero. They are looked at from the end, word
    // by word.
    while bits > NODES {
        let part = bits.min(WORD);
        let mut found = read((bits - 1) / WORD, part)?;
        if bits - part >= NODES {
            bits -= part;
        } else {
            bits = NODES;
            found &= !((1 << NODES) - 1);
        }
        if found != 0 {
            return Err(MaskError::Invalid);
        }
    }
    read(0, bits).map(|found| found as Nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIC: i32 = flag::STATIC_NODES;
    const RELATIVE: i32 = flag::RELATIVE_NODES;
    const BALANCES: i32 = flag::NUMA_BALANCING;

    fn make(mode: i32, nodes: Nodes) -> Result<Option<(i32, Nodes)>, Invalid> {
        Request::read(mode)?.policy(nodes).map(|policy| policy.map(Policy::told))
    }

    #[test]
    fn policies_are_made_of_modes_and_nodes() {
        assert_eq!(make(0, 0), Ok(None));
        assert_eq!(make(0, 1), Err(Invalid));
        assert_eq!(make(1, 1), Ok(Some((1, 1))));
        // Without a node to prefer it is the local one.
        assert_eq!(make(1, 0), Ok(Some((4, 0))));
        assert_eq!(make(1 | STATIC, 0), Err(Invalid));
        assert_eq!(make(4, 0), Ok(Some((4, 0))));
        assert_eq!(make(4, 1), Err(Invalid));
        assert_eq!(make(4 | RELATIVE, 0), Err(Invalid));
        for mode in [2, 3, 5] {
            assert_eq!(make(mode, 0), Err(Invalid));
            assert_eq!(make(mode, 2), Err(Invalid), "no such node");
            assert_eq!(make(mode, 3), Ok(Some((mode, 1))));
            assert_eq!(make(mode | STATIC, 3), Ok(Some((mode | STATIC, 3))));
            assert_eq!(make(mode | STATIC, 2), Err(Invalid));
            assert_eq!(make(mode | RELATIVE, 0xf0), Ok(Some((mode | RELATIVE, 0xf0))));
            assert_eq!(make(mode | STATIC | RELATIVE, 1), Err(Invalid));
        }
        assert_eq!(make(2 | BALANCES, 1), Ok(Some((2 | BALANCES, 1))));
        assert_eq!(make(3 | BALANCES, 1), Err(Invalid));
        for mode in [6, 7, 8, 4096, 1 << 16, -1, i32::MIN] {
            assert_eq!(make(mode, 1), Err(Invalid));
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        assert_eq!(Policy::pack(None), 0);
        for word in 0..=u16::MAX {
            if let Some(policy) = Policy::unpack(word) {
                let again = Policy::pack(Some(policy));
                assert_eq!(again, word & !FREE);
                assert_ne!(again, 0);
            }
        }
        for mode in (1..6).flat_map(|mode| [mode, mode | STATIC, mode | RELATIVE]) {
            for nodes in 0..=Nodes::MAX {
                let Ok(Ok(Some(policy))) = Request::read(mode).map(|it| it.policy(nodes)) else {
                    continue;
                };
                for has_home in [false, true] {
                    let policy = Policy { has_home, ..policy };
                    assert_eq!(Policy::unpack(Policy::pack(Some(policy))), Some(policy));
                }
            }
        }
    }

    fn read(count: usize, mask: &[u64]) -> Result<Nodes, MaskError<usize>> {
        read_nodes(count, Some(|index: usize| mask.get(index).copied().ok_or(index)))
    }

    #[test]
    fn masks_are_read_as_far_as_there_can_be_nodes() {
        let none: Option<fn(usize) -> Result<u64, ()>> = None;
        assert_eq!(read_nodes(99_999_999, none), Ok(0));
        assert_eq!(read(1, &[]), Ok(0));
        assert_eq!(read(0, &[1]), Err(MaskError::Invalid));
        assert_eq!(read(32770, &[1]), Err(MaskError::Invalid));
        assert_eq!(read(2, &[0xff]), Ok(1));
        assert_eq!(read(4, &[0xff]), Ok(7));
        assert_eq!(read(9, &[0xff]), Ok(0xff));
        assert_eq!(read(9, &[0xfff]), Ok(0xff), "a bit beyond the count");
        assert_eq!(read(10, &[0x1ff]), Err(MaskError::Invalid));
        assert_eq!(read(64, &[0x1]), Ok(1));
        assert_eq!(read(65, &[0x8000_0000_0000_0001]), Err(MaskError::Invalid));
        assert_eq!(read(64, &[0x8000_0000_0000_0001]), Ok(1));
        assert_eq!(read(129, &[3, 0]), Ok(3));
        assert_eq!(read(129, &[3, 1]), Err(MaskError::Invalid));
        assert_eq!(read(129, &[3]), Err(MaskError::Unreadable(1)));
        assert_eq!(read(2, &[]), Err(MaskError::Unreadable(0)));
    }
}
