//! Memory policies of regions, and the node of a page (`mbind(2)`, `move_pages(2)`): what Linux
//! answers on a machine of one node. A policy chooses no frame here.
//!
//! A policy lies in the flags of its regions ([`RegionFlags::policy`](super::RegionFlags::policy)).
//! That of shared memory belongs to the mapping and not, as in Linux, to the memory.

use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_memory_policy::Policy;

use super::page::{PAGE, USER_END, page_up};
use super::space::Space;

/// The one node.
pub const NODE: i32 = 0;

/// The range of a call on policies, which may be empty. `EINVAL`.
pub fn range(address: usize, length: usize) -> Result<Range<usize>> {
    let end = page_up(length).and_then(|length| address.checked_add(length));
    match end.filter(|_| address.is_multiple_of(PAGE)) {
        Some(end) => Ok(address..end),
        None => Err(Errno::EINVAL),
    }
}

impl Space {
    /// Gives a range a policy. Fails with `EFAULT` if something is not mapped there, `ENOMEM`.
    pub fn set_policy(&self, range: Range<usize>, policy: Option<Policy>) -> Result<()> {
        if range.end > USER_END || !self.table.lock().map.is_covered(range.clone()) {
            return Err(Errno::EFAULT);
        }
        self.mark(range, |flags| flags.set_policy(policy)).map(|_| ())
    }

    /// The policy of the region at an address; `None`: there is no region.
    pub fn policy_at(&self, address: usize) -> Option<Option<Policy>> {
        let guard = self.table.lock();
        guard.map.find(address).map(|region| region.value.flags.policy())
    }

    /// Sets the node with which the policies in a range begin (`set_mempolicy_home_node(2)`).
    ///
    /// # Errors
    /// `ENOENT`: no region there has a policy; `EOPNOTSUPP`: one has a policy that begins nowhere,
    /// and those before it are changed; `ENOMEM`.
    pub fn set_home(&self, range: Range<usize>) -> Result<()> {
        let end = range.end.min(USER_END);
        let mut at = range.start;
        let mut result = Err(Errno::ENOENT);
        while at < end {
            let (part, policy) = {
                let guard = self.table.lock();
                let Some(region) = guard.map.overlapping(at..end).next() else { break };
                let part = region.start.max(at)..region.end.min(end);
                (part, region.value.flags.policy())
            };
            at = part.end;
            if let Some(policy) = policy {
                let policy = policy.with_home().ok_or(Errno::EOPNOTSUPP)?;
                self.mark(part, |flags| flags.set_policy(Some(policy)))?;
                result = Ok(());
            }
            crate::schedule::breathe();
        }
        result
    }

    /// Whether a page is present in a range. A signal ends the search, as if there were none.
    pub fn holds_any(&self, range: Range<usize>) -> bool {
        for page in range.step_by(PAGE) {
            let mut guard = self.table.lock();
            let (_, edit) = guard.parts();
            let found = edit.page(page).is_some();
            drop(edit);
            drop(guard);
            if found {
                return true;
            }
            if crate::schedule::breathe() {
                return false;
            }
        }
        false
    }

    /// The node of the page at an address. Fails with `ENOENT` for a page of a file that is not
    /// present, `EFAULT` for what is not mapped and for memory that was never touched
    /// (`no_page_table`, mm/gup.c).
    pub fn node_at(&self, address: usize) -> Result<i32> {
        let mut guard = self.table.lock();
        let (inner, edit) = guard.parts();
        let region = inner.map.find(address).ok_or(Errno::EFAULT)?;
        if edit.page(address & !(PAGE - 1)).is_some() {
            Ok(NODE)
        } else if region.value.is_anonymous() {
            Err(Errno::EFAULT)
        } else {
            Err(Errno::ENOENT)
        }
    }
}
