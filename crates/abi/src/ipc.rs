//! System V objects and POSIX message queues: commands and structures (`sysvipc(7)`,
//! `mq_overview(7)`). x86-64 has the structures of 64 bits
//! alone, and no flag `IPC_64`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[allow(missing_docs, reason = "named as in sys/ipc.h, sys/shm.h, sys/sem.h and sys/msg.h")]
mod constants {
    pub const IPC_RMID: i32 = 0;
    pub const IPC_SET: i32 = 1;
    pub const IPC_STAT: i32 = 2;
    pub const IPC_INFO: i32 = 3;
    pub const IPC_NOWAIT: u32 = 0o4000;

    pub const SHM_LOCK: i32 = 11;
    pub const SHM_UNLOCK: i32 = 12;
    pub const SHM_STAT: i32 = 13;
    pub const SHM_INFO: i32 = 14;
    pub const SHM_STAT_ANY: i32 = 15;
    pub const SHM_RDONLY: u32 = 0o10000;
    pub const SHM_RND: u32 = 0o20000;
    pub const SHM_REMAP: u32 = 0o40000;
    pub const SHM_EXEC: u32 = 0o100000;

    pub const GETPID: i32 = 11;
    pub const GETVAL: i32 = 12;
    pub const GETALL: i32 = 13;
    pub const GETNCNT: i32 = 14;
    pub const GETZCNT: i32 = 15;
    pub const SETVAL: i32 = 16;
    pub const SETALL: i32 = 17;
    pub const SEM_STAT: i32 = 18;
    pub const SEM_INFO: i32 = 19;
    pub const SEM_STAT_ANY: i32 = 20;

    pub const MSG_STAT: i32 = 11;
    pub const MSG_INFO: i32 = 12;
    pub const MSG_STAT_ANY: i32 = 13;
    pub const MSG_NOERROR: u32 = 0o10000;
}
pub use constants::*;

/// `struct ipc64_perm`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in sys/ipc.h")]
pub struct IpcPerm {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    pub seq: u16,
    pub pad: u16,
    pub hole: u32,
    pub unused: [u64; 2],
}

/// `struct shmid64_ds` of `shmctl(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in shmctl(2)")]
pub struct ShmidDs {
    pub shm_perm: IpcPerm,
    pub shm_segsz: u64,
    pub shm_atime: i64,
    pub shm_dtime: i64,
    pub shm_ctime: i64,
    pub shm_cpid: i32,
    pub shm_lpid: i32,
    pub shm_nattch: u64,
    pub unused: [u64; 2],
}

/// `struct shminfo64`: the answer of `IPC_INFO`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in shmctl(2)")]
pub struct ShmLimits {
    pub shmmax: u64,
    pub shmmin: u64,
    pub shmmni: u64,
    pub shmseg: u64,
    pub shmall: u64,
    pub unused: [u64; 4],
}

/// `struct shm_info`: the answer of `SHM_INFO`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in shmctl(2)")]
pub struct ShmInfo {
    pub used_ids: i32,
    pub hole: u32,
    pub shm_tot: u64,
    pub shm_rss: u64,
    pub shm_swp: u64,
    pub swap_attempts: u64,
    pub swap_successes: u64,
}

/// `struct sembuf` of `semop(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in semop(2)")]
pub struct Sembuf {
    pub sem_num: u16,
    pub sem_op: i16,
    pub sem_flg: i16,
}

/// `struct semid64_ds` of `semctl(2)`, with the gaps that x86-64 inherited from 32 bits.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in semctl(2)")]
pub struct SemidDs {
    pub sem_perm: IpcPerm,
    pub sem_otime: i64,
    pub unused1: u64,
    pub sem_ctime: i64,
    pub unused2: u64,
    pub sem_nsems: u64,
    pub unused: [u64; 2],
}

/// `struct seminfo`: the answer of `IPC_INFO` and `SEM_INFO`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in semctl(2)")]
pub struct Seminfo {
    pub semmap: i32,
    pub semmni: i32,
    pub semmns: i32,
    pub semmnu: i32,
    pub semmsl: i32,
    pub semopm: i32,
    pub semume: i32,
    pub semusz: i32,
    pub semvmx: i32,
    pub semaem: i32,
}

/// `struct msqid64_ds` of `msgctl(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in msgctl(2)")]
pub struct MsqidDs {
    pub msg_perm: IpcPerm,
    pub msg_stime: i64,
    pub msg_rtime: i64,
    pub msg_ctime: i64,
    pub msg_cbytes: u64,
    pub msg_qnum: u64,
    pub msg_qbytes: u64,
    pub msg_lspid: i32,
    pub msg_lrpid: i32,
    pub unused: [u64; 2],
}

/// `struct msginfo`: the answer of `IPC_INFO` and `MSG_INFO`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in msgctl(2)")]
pub struct Msginfo {
    pub msgpool: i32,
    pub msgmap: i32,
    pub msgmax: i32,
    pub msgmnb: i32,
    pub msgmni: i32,
    pub msgssz: i32,
    pub msgtql: i32,
    pub msgseg: u16,
    pub hole: u16,
}

/// `struct mq_attr` of `mq_getattr(3)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in mq_getattr(3)")]
pub struct MqAttr {
    pub mq_flags: i64,
    pub mq_maxmsg: i64,
    pub mq_msgsize: i64,
    pub mq_curmsgs: i64,
    pub unused: [i64; 4],
}
