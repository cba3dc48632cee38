//! Sockets: messages, credentials, Unix-domain addresses (`socket(7)`, `unix(7)`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct user_msghdr` of `sendmsg(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in recvmsg(2)")]
pub struct Msghdr {
    pub msg_name: u64,
    pub msg_namelen: i32,
    pub hole: u32,
    pub msg_iov: u64,
    pub msg_iovlen: u64,
    pub msg_control: u64,
    pub msg_controllen: u64,
    pub msg_flags: u32,
    pub hole2: u32,
}

/// `struct mmsghdr` of `sendmmsg(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in sendmmsg(2)")]
pub struct Mmsghdr {
    pub msg_hdr: Msghdr,
    pub msg_len: u32,
    pub hole: u32,
}

/// `struct cmsghdr`; the data follows, each message aligned to 8.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in cmsg(3)")]
pub struct Cmsghdr {
    pub cmsg_len: u64,
    pub cmsg_level: i32,
    pub cmsg_type: i32,
}

/// `struct ucred` of `SO_PEERCRED` and `SCM_CREDENTIALS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in unix(7)")]
pub struct Ucred {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

/// `struct linger` of `SO_LINGER`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in socket(7)")]
pub struct Linger {
    pub l_onoff: i32,
    pub l_linger: i32,
}
