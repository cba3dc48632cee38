//! The structures have the sizes that the C library gives them.

use core::mem::size_of;
use hayate_abi::{accounting, file, ipc, process, signal, socket, time};

macro_rules! same_size {
    ($($ours:ty = $theirs:ty),* $(,)?) => {
        $(assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), stringify!($ours));)*
    };
}

#[test]
fn sizes_match_the_c_library() {
    same_size!(
        file::Stat = libc::stat,
        file::Statx = libc::statx,
        file::Statfs = libc::statfs,
        file::Iovec = libc::iovec,
        file::Pollfd = libc::pollfd,
        file::EpollEvent = libc::epoll_event,
        file::Flock = libc::flock,
        file::OpenHow = libc::open_how,
        file::InotifyEventHead = libc::inotify_event,
        file::Winsize = libc::winsize,
        file::Termios2 = libc::termios2,
        ipc::IpcPerm = libc::ipc_perm,
        ipc::ShmidDs = libc::shmid_ds,
        ipc::SemidDs = libc::semid_ds,
        ipc::MsqidDs = libc::msqid_ds,
        ipc::Msginfo = libc::msginfo,
        ipc::MqAttr = libc::mq_attr,
        ipc::Sembuf = libc::sembuf,
        ipc::Seminfo = libc::seminfo,
        process::Rusage = libc::rusage,
        process::Rlimit = libc::rlimit,
        process::CloneArgs = libc::clone_args,
        process::Utsname = libc::utsname,
        process::Sysinfo = libc::sysinfo,
        process::SchedParam = libc::sched_param,
        signal::Siginfo = libc::siginfo_t,
        signal::SignalStack = libc::stack_t,
        signal::Sigevent = libc::sigevent,
        signal::SignalfdSiginfo = libc::signalfd_siginfo,
        socket::Msghdr = libc::msghdr,
        socket::Mmsghdr = libc::mmsghdr,
        socket::Cmsghdr = libc::cmsghdr,
        socket::Ucred = libc::ucred,
        socket::Linger = libc::linger,
        time::Timespec = libc::timespec,
        time::Timeval = libc::timeval,
        time::Itimerval = libc::itimerval,
        time::Itimerspec = libc::itimerspec,
        time::Tms = libc::tms,
        time::Timex = libc::timex,
    );
}

#[test]
fn sizes_of_what_the_c_library_lacks() {
    assert_eq!(size_of::<signal::Sigaction>(), 32);
    // mcontext_t of the C library: 23 general registers, the fpstate pointer, 8 reserved words.
    assert_eq!(size_of::<signal::Sigcontext>(), size_of::<libc::mcontext_t>());
    assert_eq!(core::mem::offset_of!(signal::Ucontext, uc_sigmask), 296);
    assert_eq!(size_of::<file::Termios>(), 36);
    assert_eq!(size_of::<file::Dirent64Head>(), 19);
    assert_eq!(size_of::<process::SchedAttr>(), 56);
    assert_eq!(size_of::<process::RobustListHead>(), 24);
    assert_eq!(size_of::<process::FutexWaitv>(), 24);
    assert_eq!(size_of::<file::Ustat>(), 32);
    assert_eq!(size_of::<accounting::AcctV3>(), 64);
    assert_eq!(size_of::<ipc::ShmLimits>(), 72);
    assert_eq!(size_of::<ipc::ShmInfo>(), 48);
}

#[test]
fn times_reject_what_the_kernel_rejects() {
    use hayate_abi::Errno;
    let bad = [(-1, 0), (0, -1), (0, 1_000_000_000)];
    for (tv_sec, tv_nsec) in bad {
        assert_eq!(time::Timespec { tv_sec, tv_nsec }.to_nanos(), Err(Errno::EINVAL));
    }
    assert_eq!(time::Timespec { tv_sec: i64::MAX, tv_nsec: 0 }.to_nanos(), Ok(u64::MAX));
    assert_eq!(
        time::Timespec::from_nanos(1_500_000_000),
        time::Timespec { tv_sec: 1, tv_nsec: 500_000_000 }
    );
}
