//! Sets of controllers, and the text by which they are given to the children of a group.

/// A set of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers(u16);

/// A controller's name, as files and programs have it, and the set with it alone.
const NAMES: [(&str, Controllers); 4] = [
    ("cpu", Controllers::CPU),
    ("io", Controllers::IO),
    ("memory", Controllers::MEMORY),
    ("pids", Controllers::PIDS),
];

impl Controllers {
    /// None.
    pub const NONE: Controllers = Controllers(0);
    /// The number of processes and threads.
    pub const PIDS: Controllers = Controllers(1);
    /// Memory.
    pub const MEMORY: Controllers = Controllers(2);
    /// Processor time.
    pub const CPU: Controllers = Controllers(4);
    /// Input and output of block devices.
    pub const IO: Controllers = Controllers(8);
    /// All that there are.
    pub const ALL: Controllers =
        Controllers::PIDS.with(Controllers::MEMORY).with(Controllers::CPU).with(Controllers::IO);
    /// Those that are *threaded*: processes of the group that gives them to its children do not
    /// compete with these (`cgrp_dfl_threaded_ss_mask`).
    pub const THREADED: Controllers = Controllers::PIDS.with(Controllers::CPU);

    /// Whether it has all of `other`.
    pub const fn has(self, other: Controllers) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is none.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Those of either.
    pub const fn with(self, other: Controllers) -> Controllers {
        Controllers(self.0 | other.0)
    }

    /// Those that are not in `other`.
    pub const fn without(self, other: Controllers) -> Controllers {
        Controllers(self.0 & !other.0)
    }

    /// Those of both.
    pub const fn both(self, other: Controllers) -> Controllers {
        Controllers(self.0 & other.0)
    }

    /// Their names, in the order in which files list them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.iter().filter(move |(_, one)| self.has(*one)).map(|(name, _)| *name)
    }

    fn named(name: &[u8]) -> Option<Controllers> {
        NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, one)| *one)
    }
}

/// What a write into `cgroup.subtree_control` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// To be given to the children.
    pub enable: Controllers,
    /// To be taken from them.
    pub disable: Controllers,
}

/// Why controllers are not given or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The group has not got the controller itself (`ENOENT`).
    NotHere,
    /// A child gives it to its own children (`EBUSY`).
    InUse,
}

impl Request {
    /// Reads the text: words with spaces between them, each `+NAME` or `-NAME`; the last about a
    /// controller counts (`cgroup_subtree_control_write`). `None` if it is none (`EINVAL`).
    pub fn parse(text: &[u8]) -> Option<Request> {
        let mut request = Request::default();
        for word in text.trim_ascii().split(|&byte| byte == b' ').filter(|word| !word.is_empty()) {
            let (sign, name) = word.split_first()?;
            let one = Controllers::named(name)?;
            let (to, from) = match sign {
                b'+' => (&mut request.enable, &mut request.disable),
                b'-' => (&mut request.disable, &mut request.enable),
                _ => return None,
            };
            *to = to.with(one);
            *from = from.without(one);
        }
        Some(request)
    }

    /// The rest of the request in a group that has `available` itself and gives `given` to its
    /// children, which give `below` to theirs.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn reduced(
        self,
        available: Controllers,
        given: Controllers,
        below: Controllers,
    ) -> Result<Request, Refusal> {
        let enable = self.enable.without(given);
        let disable = self.disable.both(given);
        if !available.has(enable) {
            return Err(Refusal::NotHere);
        }
        if !below.both(disable).is_none() {
            return Err(Refusal::InUse);
        }
        Ok(Request { enable, disable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIDS: Controllers = Controllers::PIDS;
    const NONE: Controllers = Controllers::NONE;

    #[test]
    fn the_text_is_words_with_signs() {
        let enable = Some(Request { enable: PIDS, disable: NONE });
        let disable = Some(Request { enable: NONE, disable: PIDS });
        assert_eq!(Request::parse(b"+pids\n"), enable);
        assert_eq!(Request::parse(b"  +pids  "), enable);
        assert_eq!(Request::parse(b"-pids +pids"), enable);
        assert_eq!(Request::parse(b"+pids  -pids"), disable);
        assert_eq!(Request::parse(b""), Some(Request::default()));
        for bad in ["pids", "+rdma", "+", "-", "+pids,-pids", "*pids", "+pids\n+pids"] {
            assert_eq!(Request::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_group_gives_what_it_has() {
        let enable = Request { enable: PIDS, disable: NONE };
        let disable = Request { enable: NONE, disable: PIDS };
        assert_eq!(enable.reduced(PIDS, NONE, NONE), Ok(enable));
        assert_eq!(enable.reduced(NONE, NONE, NONE), Err(Refusal::NotHere));
        // Controllers that are given already are not looked at again.
        assert_eq!(enable.reduced(PIDS, PIDS, PIDS), Ok(Request::default()));
        assert_eq!(disable.reduced(PIDS, PIDS, NONE), Ok(disable));
        assert_eq!(disable.reduced(PIDS, PIDS, PIDS), Err(Refusal::InUse));
        assert_eq!(disable.reduced(PIDS, NONE, NONE), Ok(Request::default()));
    }

    #[test]
    fn names_are_listed() {
        let names: alloc::vec::Vec<&str> = Controllers::ALL.names().collect();
        assert_eq!(names, ["cpu", "io", "memory", "pids"]);
        assert_eq!(NONE.names().count(), 0);
    }
}
