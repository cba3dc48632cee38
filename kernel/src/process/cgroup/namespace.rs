//! Cgroup namespaces (cgroup_namespaces(7)): a group that is the root of what its members see, in
//! `/proc/PID/cgroup` and in what they mount. It is the one in which the maker was.

use alloc::sync::Arc;

use super::group;
use super::group::Group;
use crate::namespace::{self, Handle};
use crate::user_namespace::{self, UserNamespace};
use crate::vfs::users::Counted;

/// A cgroup namespace.
pub struct CgroupNamespace {
    /// Its number.
    pub number: u64,
    /// `None`: the root of the hierarchy.
    root: Option<Arc<Group>>,
    /// The user namespace that it belongs to.
    pub owner: Handle<UserNamespace>,
    /// Its place among those of the user who made it.
    _counted: Option<Counted>,
}

/// The first one.
pub static FIRST: CgroupNamespace = CgroupNamespace {
    number: namespace::first::CGROUP,
    root: None,
    owner: user_namespace::first(),
    _counted: None,
};

impl CgroupNamespace {
    /// Another one, whose root is `root`.
    pub fn another(
        root: Arc<Group>,
        owner: Handle<UserNamespace>,
        counted: Counted,
    ) -> Handle<CgroupNamespace> {
        Handle::Other(Arc::new(CgroupNamespace {
            number: namespace::number(),
            root: Some(root),
            owner,
            _counted: Some(counted),
        }))
    }

    /// The group that is its root.
    pub fn root(&self) -> &Arc<Group> {
        self.root.as_ref().unwrap_or(group::root())
    }

    /// Whether it is the first.
    pub fn is_first(&self) -> bool {
        self.number == namespace::first::CGROUP
    }
}
