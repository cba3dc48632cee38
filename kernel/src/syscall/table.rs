// The table of system calls: x86-64 numbers of Linux 6.1, and from 1000 on Hayate's own.
//
// One row is
//
//     NUMBER NAME(ARGUMENT: KIND, ...) [SUPPORT];
//
// where a KIND says how the register is decoded, passed to the handler and shown in a trace
// (`argument.rs`), and SUPPORT is one of
//
//     none                                     fails with ENOSYS
//     none "why"                               the same, with a note
//     complete path::to::handler               does what the man page says
//     partial path::to::handler "what lacks"   fails with an error for what it lacks
//
// with `registers` before a path whose handler takes the caller's registers first.
//
// The file is one macro call and nothing else, because two programs read it: the kernel makes
// the dispatch table from it (`calls.rs`) and `crates/abi/tests/compatibility.rs` makes
// docs/compatibility.md. Rows stand by family, not by number.
syscalls! {
    "Files: read and write" {
        0 read(fd: Fd, buffer: Pointer, count: Size) [complete file::io::read];
        1 write(fd: Fd, buffer: Pointer, count: Size) [complete file::io::write];
        17 pread64(fd: Fd, buffer: Pointer, count: Size, offset: Offset) [complete file::io::pread64];
        18 pwrite64(fd: Fd, buffer: Pointer, count: Size, offset: Offset) [complete file::io::pwrite64];
        19 readv(fd: Fd, vector: Pointer, count: Size) [complete file::io::readv];
        20 writev(fd: Fd, vector: Pointer, count: Size) [complete file::io::writev];
        295 preadv(fd: Fd, vector: Pointer, count: Size, offset: Offset, high: Word) [complete file::io::preadv];
        296 pwritev(fd: Fd, vector: Pointer, count: Size, offset: Offset, high: Word) [complete file::io::pwritev];
        327 preadv2(fd: Fd, vector: Pointer, count: Size, offset: Offset, high: Word, flags: Flags) [complete file::io::preadv2];
        328 pwritev2(fd: Fd, vector: Pointer, count: Size, offset: Offset, high: Word, flags: Flags) [complete file::io::pwritev2];
        8 lseek(fd: Fd, offset: Offset, whence: Int) [complete file::io::lseek];
        40 sendfile(out: Fd, input: Fd, offset: Pointer, count: Size) [complete file::transfer::sendfile];
        326 copy_file_range(input: Fd, input_offset: Pointer, out: Fd, out_offset: Pointer, count: Size, flags: Flags) [complete file::copy::copy_file_range];
        275 splice(input: Fd, input_offset: Pointer, out: Fd, out_offset: Pointer, count: Size, flags: Flags) [complete file::transfer::splice];
        276 tee(input: Fd, out: Fd, count: Size, flags: Flags) [complete file::transfer::tee];
        278 vmsplice(fd: Fd, vector: Pointer, count: Size, flags: Flags) [partial file::transfer::vmsplice "copies the pages"];
        74 fsync(fd: Fd) [complete file::io::fsync];
        75 fdatasync(fd: Fd) [complete file::io::fdatasync];
        162 sync() [complete file::io::sync];
        306 syncfs(fd: Fd) [complete file::io::syncfs];
        277 sync_file_range(fd: Fd, offset: Offset, count: Offset, flags: Flags) [complete file::io::sync_file_range];
        187 readahead(fd: Fd, offset: Offset, count: Size) [complete file::io::readahead];
        221 fadvise64(fd: Fd, offset: Offset, length: Size, advice: Int) [complete file::io::fadvise64];
        77 ftruncate(fd: Fd, length: Offset) [complete file::metadata::ftruncate];
        76 truncate(path: Path, length: Offset) [complete file::metadata::truncate];
        285 fallocate(fd: Fd, mode: Int, offset: Offset, length: Offset) [partial file::metadata::fallocate "allocates and punches holes; other modes answer EOPNOTSUPP"];
    }

    "Files: names and directories" {
        2 open(path: Path, flags: Flags, mode: Mode) [complete file::descriptors::open];
        85 creat(path: Path, mode: Mode) [complete file::descriptors::creat];
        257 openat(directory: Fd, path: Path, flags: Flags, mode: Mode) [complete file::descriptors::openat];
        437 openat2(directory: Fd, path: Path, how: Pointer, size: Size) [partial file::descriptors::openat2 "RESOLVE_CACHED always answers EAGAIN"];
        3 close(fd: Fd) [complete file::descriptors::close];
        436 close_range(first: Uint, last: Uint, flags: Flags) [complete file::descriptors::close_range];
        78 getdents(fd: Fd, buffer: Pointer, count: Uint) [complete file::names::getdents];
        217 getdents64(fd: Fd, buffer: Pointer, count: Uint) [complete file::names::getdents64];
        79 getcwd(buffer: Pointer, size: Size) [complete file::names::getcwd];
        80 chdir(path: Path) [complete file::names::chdir];
        81 fchdir(fd: Fd) [complete file::names::fchdir];
        82 rename(from: Path, to: Path) [complete file::names::rename];
        264 renameat(from_directory: Fd, from: Path, to_directory: Fd, to: Path) [complete file::names::renameat];
        316 renameat2(from_directory: Fd, from: Path, to_directory: Fd, to: Path, flags: Flags) [complete file::names::renameat2];
        83 mkdir(path: Path, mode: Mode) [complete file::names::mkdir];
        258 mkdirat(directory: Fd, path: Path, mode: Mode) [complete file::names::mkdirat];
        84 rmdir(path: Path) [complete file::names::rmdir];
        86 link(from: Path, to: Path) [complete file::names::link];
        265 linkat(from_directory: Fd, from: Path, to_directory: Fd, to: Path, flags: Flags) [complete file::names::linkat];
        87 unlink(path: Path) [complete file::names::unlink];
        263 unlinkat(directory: Fd, path: Path, flags: Flags) [complete file::names::unlinkat];
        88 symlink(target: Path, path: Path) [complete file::names::symlink];
        266 symlinkat(target: Path, directory: Fd, path: Path) [complete file::names::symlinkat];
        89 readlink(path: Path, buffer: Pointer, size: Size) [complete file::names::readlink];
        267 readlinkat(directory: Fd, path: Path, buffer: Pointer, size: Size) [complete file::names::readlinkat];
        133 mknod(path: Path, mode: Mode, device: Word) [complete file::names::mknod];
        259 mknodat(directory: Fd, path: Path, mode: Mode, device: Word) [complete file::names::mknodat];
        303 name_to_handle_at(directory: Fd, path: Path, handle: Pointer, mount: Pointer, flags: Flags) [partial file::handles::name_to_handle_at "of tmpfs, ext4 and cgroup2; others have no handles: EOPNOTSUPP"];
        304 open_by_handle_at(mount: Fd, handle: Pointer, flags: Flags) [partial file::handles::open_by_handle_at "of tmpfs, ext4 and cgroup2"];
        95 umask(mask: Mode) [complete file::names::umask];
        161 chroot(path: Path) [complete file::mounts::chroot];
        155 pivot_root(new_root: Path, put_old: Path) [complete file::mounts::pivot_root];
        165 mount(source: Pointer, target: Path, kind: Pointer, flags: Word, data: Pointer) [complete file::mounts::mount];
        166 umount2(target: Path, flags: Flags) [complete file::mounts::umount2];
        428 open_tree(directory: Fd, path: Path, flags: Flags) [complete file::mount_trees::open_tree];
        429 move_mount(from_directory: Fd, from: Path, to_directory: Fd, to: Path, flags: Flags) [complete file::mount_trees::move_mount];
        430 fsopen(name: Path, flags: Flags) [partial file::mount_trees::fsopen "no messages to read from it"];
        431 fsconfig(fd: Fd, command: Uint, key: Path, value: Pointer, auxiliary: Int) [partial file::mount_trees::fsconfig "unknown options are refused by FSCONFIG_CMD_CREATE and not before; ro makes one mount read-only"];
        432 fsmount(fd: Fd, flags: Flags, attributes: Flags) [complete file::mount_trees::fsmount];
        433 fspick(directory: Fd, path: Path, flags: Flags) [complete file::mount_trees::fspick];
        442 mount_setattr(directory: Fd, path: Path, flags: Flags, attributes: Pointer, size: Size) [partial file::mount_trees::mount_setattr "no identifiers mapped: EINVAL"];
    }

    "Files: metadata" {
        4 stat(path: Path, buffer: Pointer) [complete file::metadata::stat];
        5 fstat(fd: Fd, buffer: Pointer) [complete file::metadata::fstat];
        6 lstat(path: Path, buffer: Pointer) [complete file::metadata::lstat];
        262 newfstatat(directory: Fd, path: Path, buffer: Pointer, flags: Flags) [complete file::metadata::newfstatat];
        332 statx(directory: Fd, path: Path, flags: Flags, mask: Flags, buffer: Pointer) [complete file::metadata::statx];
        137 statfs(path: Path, buffer: Pointer) [complete file::metadata::statfs];
        138 fstatfs(fd: Fd, buffer: Pointer) [complete file::metadata::fstatfs];
        136 ustat(device: Uint, buffer: Pointer) [complete file::metadata::ustat];
        21 access(path: Path, mode: Int) [complete file::metadata::access];
        269 faccessat(directory: Fd, path: Path, mode: Int) [complete file::metadata::faccessat];
        439 faccessat2(directory: Fd, path: Path, mode: Int, flags: Flags) [complete file::metadata::faccessat2];
        90 chmod(path: Path, mode: Mode) [complete file::metadata::chmod];
        91 fchmod(fd: Fd, mode: Mode) [complete file::metadata::fchmod];
        268 fchmodat(directory: Fd, path: Path, mode: Mode) [complete file::metadata::fchmodat];
        92 chown(path: Path, user: Uint, group: Uint) [complete file::metadata::chown];
        93 fchown(fd: Fd, user: Uint, group: Uint) [complete file::metadata::fchown];
        94 lchown(path: Path, user: Uint, group: Uint) [complete file::metadata::lchown];
        260 fchownat(directory: Fd, path: Path, user: Uint, group: Uint, flags: Flags) [complete file::metadata::fchownat];
        132 utime(path: Path, times: Pointer) [complete file::metadata::utime];
        235 utimes(path: Path, times: Pointer) [complete file::metadata::utimes];
        261 futimesat(directory: Fd, path: Path, times: Pointer) [complete file::metadata::futimesat];
        280 utimensat(directory: Fd, path: Path, times: Pointer, flags: Flags) [complete file::metadata::utimensat];
        188 setxattr(path: Path, name: Path, value: Pointer, size: Size, flags: Flags) [complete file::xattr::setxattr];
        189 lsetxattr(path: Path, name: Path, value: Pointer, size: Size, flags: Flags) [complete file::xattr::lsetxattr];
        190 fsetxattr(fd: Fd, name: Path, value: Pointer, size: Size, flags: Flags) [complete file::xattr::fsetxattr];
        191 getxattr(path: Path, name: Path, value: Pointer, size: Size) [complete file::xattr::getxattr];
        192 lgetxattr(path: Path, name: Path, value: Pointer, size: Size) [complete file::xattr::lgetxattr];
        193 fgetxattr(fd: Fd, name: Path, value: Pointer, size: Size) [complete file::xattr::fgetxattr];
        194 listxattr(path: Path, list: Pointer, size: Size) [complete file::xattr::listxattr];
        195 llistxattr(path: Path, list: Pointer, size: Size) [complete file::xattr::llistxattr];
        196 flistxattr(fd: Fd, list: Pointer, size: Size) [complete file::xattr::flistxattr];
        197 removexattr(path: Path, name: Path) [complete file::xattr::removexattr];
        198 lremovexattr(path: Path, name: Path) [complete file::xattr::lremovexattr];
        199 fremovexattr(fd: Fd, name: Path) [complete file::xattr::fremovexattr];
    }

    "Files: descriptors, pipes, locks" {
        32 dup(fd: Fd) [complete file::descriptors::dup];
        33 dup2(fd: Fd, to: Fd) [complete file::descriptors::dup2];
        292 dup3(fd: Fd, to: Fd, flags: Flags) [complete file::descriptors::dup3];
        72 fcntl(fd: Fd, command: Int, argument: Word) [complete file::descriptors::fcntl];
        73 flock(fd: Fd, operation: Int) [complete file::descriptors::flock];
        16 ioctl(fd: Fd, command: Flags, argument: Word) [partial file::descriptors::ioctl "no SIOCUNIXFILE, SIOCSARP, SIOCGARP, SIOCDARP, SIOCSIFNAME, SIOCADDMULTI, SIOCDELMULTI, SIOCGIFMAP, SIOCGSTAMP: ENOTTY; SIOCSIFHWADDR of lo: EOPNOTSUPP"];
        22 pipe(fds: Pointer) [complete file::descriptors::pipe];
        293 pipe2(fds: Pointer, flags: Flags) [complete file::descriptors::pipe2];
        319 memfd_create(name: Path, flags: Flags) [partial file::descriptors::memfd_create "no huge pages"];
        253 inotify_init() [complete file::events::inotify_init];
        294 inotify_init1(flags: Flags) [complete file::events::inotify_init1];
        254 inotify_add_watch(fd: Fd, path: Path, mask: Flags) [complete file::events::inotify_add_watch];
        255 inotify_rm_watch(fd: Fd, watch: Int) [complete file::events::inotify_rm_watch];
        153 vhangup() [complete system::vhangup];
    }

    "Files: waiting for events" {
        7 poll(fds: Pointer, count: Uint, timeout: Int) [complete file::events::poll];
        271 ppoll(fds: Pointer, count: Uint, timeout: Pointer, mask: Pointer, size: Size) [complete file::events::ppoll];
        23 select(count: Int, read: Pointer, write: Pointer, except: Pointer, timeout: Pointer) [complete file::events::select];
        270 pselect6(count: Int, read: Pointer, write: Pointer, except: Pointer, timeout: Pointer, mask: Pointer) [complete file::events::pselect6];
        213 epoll_create(size: Int) [complete file::events::epoll_create];
        291 epoll_create1(flags: Flags) [complete file::events::epoll_create1];
        233 epoll_ctl(epoll: Fd, operation: Int, fd: Fd, event: Pointer) [complete file::events::epoll_ctl];
        232 epoll_wait(epoll: Fd, events: Pointer, count: Int, timeout: Int) [complete file::events::epoll_wait];
        281 epoll_pwait(epoll: Fd, events: Pointer, count: Int, timeout: Int, mask: Pointer, size: Size) [complete file::events::epoll_pwait];
        441 epoll_pwait2(epoll: Fd, events: Pointer, count: Int, timeout: Pointer, mask: Pointer, size: Size) [complete file::events::epoll_pwait2];
        206 io_setup(events: Uint, id: Pointer) [complete file::aio::io_setup];
        207 io_destroy(id: Word) [complete file::aio::io_destroy];
        208 io_getevents(id: Word, least: Long, most: Long, events: Pointer, timeout: Pointer) [complete file::aio::io_getevents];
        209 io_submit(id: Word, count: Long, requests: Pointer) [complete file::aio::io_submit];
        210 io_cancel(id: Word, request: Pointer, result: Pointer) [complete file::aio::io_cancel];
        333 io_pgetevents(id: Word, least: Long, most: Long, events: Pointer, timeout: Pointer, mask: Pointer) [complete file::aio::io_pgetevents];
        284 eventfd(initial: Uint) [complete file::events::eventfd];
        290 eventfd2(initial: Uint, flags: Flags) [complete file::events::eventfd2];
        282 signalfd(fd: Fd, mask: Pointer, size: Size) [complete file::events::signalfd];
        289 signalfd4(fd: Fd, mask: Pointer, size: Size, flags: Flags) [complete file::events::signalfd4];
        283 timerfd_create(clock: Int, flags: Flags) [complete file::events::timerfd_create];
        286 timerfd_settime(fd: Fd, flags: Flags, new: Pointer, old: Pointer) [complete file::events::timerfd_settime];
        287 timerfd_gettime(fd: Fd, current: Pointer) [complete file::events::timerfd_gettime];
    }

    "Memory" {
        9 mmap(address: Word, length: Size, protection: Flags, flags: Flags, fd: Fd, offset: Word) [partial memory::mmap "no MAP_HUGETLB, no MAP_SYNC"];
        10 mprotect(address: Word, length: Size, protection: Flags) [complete memory::mprotect];
        11 munmap(address: Word, length: Size) [complete memory::munmap];
        12 brk(address: Word) [complete memory::brk];
        25 mremap(address: Word, old: Size, new: Size, flags: Flags, new_address: Word) [complete memory::mremap];
        26 msync(address: Word, length: Size, flags: Flags) [complete memory::msync];
        27 mincore(address: Word, length: Size, vector: Pointer) [complete memory::mincore];
        28 madvise(address: Word, length: Size, advice: Int) [partial memory::madvise "no KSM, no collapsing to large pages"];
        323 userfaultfd(flags: Flags) [partial memory::userfaultfd::userfaultfd "missing pages alone: neither write protection nor minor faults (EINVAL), no events but page faults"];
        440 process_madvise(pidfd: Fd, vector: Pointer, count: Size, advice: Int, flags: Flags) [partial memory::process_madvise "no collapsing to large pages"];
        149 mlock(address: Word, length: Size) [complete memory::mlock];
        325 mlock2(address: Word, length: Size, flags: Flags) [complete memory::mlock2];
        150 munlock(address: Word, length: Size) [complete memory::munlock];
        151 mlockall(flags: Flags) [complete memory::mlockall];
        152 munlockall() [complete memory::munlockall];
        216 remap_file_pages(address: Word, size: Size, protection: Flags, offset: Size, flags: Flags) [none];
        310 process_vm_readv(pid: Int, local: Pointer, local_count: Size, remote: Pointer, remote_count: Size, flags: Flags) [complete memory::process_vm_readv];
        311 process_vm_writev(pid: Int, local: Pointer, local_count: Size, remote: Pointer, remote_count: Size, flags: Flags) [complete memory::process_vm_writev];
        324 membarrier(command: Int, flags: Flags, cpu: Int) [complete memory::membarrier];
        329 pkey_mprotect(address: Word, length: Size, protection: Flags, key: Int) [partial memory::pkey_mprotect "no protection keys: key -1 only"];
        330 pkey_alloc(flags: Flags, rights: Flags) [partial memory::pkey_alloc "no protection keys: ENOSPC"];
        331 pkey_free(key: Int) [partial memory::pkey_free "no protection keys: EINVAL"];
        238 set_mempolicy(mode: Int, nodes: Pointer, count: Size) [complete memory::set_mempolicy];
        239 get_mempolicy(mode: Pointer, nodes: Pointer, count: Size, address: Word, flags: Flags) [complete memory::get_mempolicy];
        237 mbind(address: Word, length: Size, mode: Int, nodes: Pointer, count: Size, flags: Flags) [partial memory::mbind "the policy of shared memory belongs to the mapping"];
        450 set_mempolicy_home_node(address: Word, length: Size, node: Word, flags: Word) [complete memory::set_mempolicy_home_node];
        256 migrate_pages(pid: Int, count: Size, from: Pointer, to: Pointer) [complete memory::migrate_pages];
        279 move_pages(pid: Int, count: Size, pages: Pointer, nodes: Pointer, status: Pointer, flags: Flags) [complete memory::move_pages];
        448 process_mrelease(pidfd: Fd, flags: Flags) [complete memory::process_mrelease];
    }

    "Processes and threads" {
        56 clone(flags: Word, stack: Word, parent_tid: Pointer, child_tid: Pointer, tls: Word) [partial registers process::clone "of namespaces all but time"];
        435 clone3(arguments: Pointer, size: Size) [partial registers process::clone3 "of namespaces all but time; no set_tid"];
        57 fork() [complete registers process::fork];
        58 vfork() [complete registers process::vfork];
        59 execve(path: Path, arguments: Pointer, environment: Pointer) [complete registers process::execve];
        322 execveat(directory: Fd, path: Path, arguments: Pointer, environment: Pointer, flags: Flags) [complete registers process::execveat];
        60 exit(status: Int) [complete process::exit];
        231 exit_group(status: Int) [complete process::exit_group];
        61 wait4(pid: Int, status: Pointer, options: Flags, usage: Pointer) [complete process::wait4];
        247 waitid(kind: Int, id: Int, info: Pointer, options: Flags, usage: Pointer) [complete process::waitid];
        39 getpid() [complete process::getpid];
        110 getppid() [complete process::getppid];
        186 gettid() [complete process::gettid];
        111 getpgrp() [complete process::getpgrp];
        121 getpgid(pid: Int) [complete process::getpgid];
        109 setpgid(pid: Int, group: Int) [complete process::setpgid];
        124 getsid(pid: Int) [complete process::getsid];
        112 setsid() [complete process::setsid];
        218 set_tid_address(address: Word) [complete process::set_tid_address];
        272 unshare(flags: Word) [partial process::unshare "of namespaces all but time"];
        317 seccomp(operation: Uint, flags: Flags, arguments: Pointer) [complete seccomp::seccomp];
        157 prctl(option: Int, second: Word, third: Word, fourth: Word, fifth: Word) [partial prctl::prctl "no MCE and mm options"];
        158 arch_prctl(code: Int, address: Word) [partial arch::arch_prctl "no CPUID faulting, no AMX permission"];
        97 getrlimit(resource: Uint, limit: Pointer) [complete process::getrlimit];
        160 setrlimit(resource: Uint, limit: Pointer) [complete process::setrlimit];
        302 prlimit64(pid: Int, resource: Uint, new: Pointer, old: Pointer) [complete process::prlimit64];
        98 getrusage(who: Int, usage: Pointer) [complete process::getrusage];
        100 times(buffer: Pointer) [complete process::times];
        135 personality(persona: Flags) [partial process::personality "only ADDR_NO_RANDOMIZE has an effect"];
        101 ptrace(request: Long, pid: Int, address: Word, data: Word) [partial ptrace::ptrace "no block steps, no reading of filters, no 32-bit programs"];
        434 pidfd_open(pid: Int, flags: Flags) [complete pidfd::pidfd_open];
        424 pidfd_send_signal(pidfd: Fd, signal: Int, info: Pointer, flags: Flags) [complete pidfd::pidfd_send_signal];
        438 pidfd_getfd(pidfd: Fd, fd: Fd, flags: Flags) [complete pidfd::pidfd_getfd];
        312 kcmp(first: Int, second: Int, kind: Int, index: Word, other: Word) [complete kcmp::kcmp];
        308 setns(fd: Fd, kind: Int) [partial namespaces::setns "of namespaces all but time"];
    }

    "Signals" {
        62 kill(pid: Int, signal: Int) [complete signal::kill];
        200 tkill(tid: Int, signal: Int) [complete signal::tkill];
        234 tgkill(pid: Int, tid: Int, signal: Int) [complete signal::tgkill];
        129 rt_sigqueueinfo(pid: Int, signal: Int, info: Pointer) [complete signal::rt_sigqueueinfo];
        297 rt_tgsigqueueinfo(pid: Int, tid: Int, signal: Int, info: Pointer) [complete signal::rt_tgsigqueueinfo];
        13 rt_sigaction(signal: Int, new: Pointer, old: Pointer, size: Size) [complete signal::rt_sigaction];
        14 rt_sigprocmask(how: Int, new: Pointer, old: Pointer, size: Size) [complete signal::rt_sigprocmask];
        15 rt_sigreturn() [complete registers signal::rt_sigreturn];
        34 pause() [complete signal::pause];
        127 rt_sigpending(set: Pointer, size: Size) [complete signal::rt_sigpending];
        128 rt_sigtimedwait(set: Pointer, info: Pointer, timeout: Pointer, size: Size) [complete signal::rt_sigtimedwait];
        130 rt_sigsuspend(mask: Pointer, size: Size) [complete signal::rt_sigsuspend];
        131 sigaltstack(new: Pointer, old: Pointer) [complete registers signal::sigaltstack];
        219 restart_syscall() [complete signal::restart_syscall];
    }

    "Time" {
        35 nanosleep(request: Pointer, remaining: Pointer) [complete time::nanosleep];
        230 clock_nanosleep(clock: Int, flags: Flags, request: Pointer, remaining: Pointer) [complete time::clock_nanosleep];
        228 clock_gettime(clock: Int, time: Pointer) [complete time::clock_gettime];
        227 clock_settime(clock: Int, time: Pointer) [complete time::clock_settime];
        229 clock_getres(clock: Int, resolution: Pointer) [complete time::clock_getres];
        305 clock_adjtime(clock: Int, timex: Pointer) [complete adjust::clock_adjtime];
        159 adjtimex(timex: Pointer) [complete adjust::adjtimex];
        96 gettimeofday(time: Pointer, zone: Pointer) [complete time::gettimeofday];
        164 settimeofday(time: Pointer, zone: Pointer) [complete time::settimeofday];
        201 time(time: Pointer) [complete time::time];
        37 alarm(seconds: Uint) [complete timer::alarm];
        36 getitimer(which: Int, current: Pointer) [complete timer::getitimer];
        38 setitimer(which: Int, new: Pointer, old: Pointer) [complete timer::setitimer];
        222 timer_create(clock: Int, event: Pointer, timer: Pointer) [partial timer::timer_create "no processor-time clocks of others"];
        223 timer_settime(timer: Int, flags: Flags, new: Pointer, old: Pointer) [complete timer::timer_settime];
        224 timer_gettime(timer: Int, current: Pointer) [complete timer::timer_gettime];
        225 timer_getoverrun(timer: Int) [complete timer::timer_getoverrun];
        226 timer_delete(timer: Int) [complete timer::timer_delete];
    }

    "Scheduling" {
        24 sched_yield() [complete sched::sched_yield];
        140 getpriority(which: Int, who: Int) [complete sched::getpriority];
        141 setpriority(which: Int, who: Int, nice: Int) [complete sched::setpriority];
        142 sched_setparam(pid: Int, parameters: Pointer) [complete sched::sched_setparam];
        143 sched_getparam(pid: Int, parameters: Pointer) [complete sched::sched_getparam];
        144 sched_setscheduler(pid: Int, policy: Int, parameters: Pointer) [complete sched::sched_setscheduler];
        145 sched_getscheduler(pid: Int) [complete sched::sched_getscheduler];
        146 sched_get_priority_max(policy: Int) [complete sched::sched_get_priority_max];
        147 sched_get_priority_min(policy: Int) [complete sched::sched_get_priority_min];
        148 sched_rr_get_interval(pid: Int, interval: Pointer) [complete sched::sched_rr_get_interval];
        203 sched_setaffinity(pid: Int, size: Size, mask: Pointer) [complete sched::sched_setaffinity];
        204 sched_getaffinity(pid: Int, size: Size, mask: Pointer) [complete sched::sched_getaffinity];
        314 sched_setattr(pid: Int, attributes: Pointer, flags: Flags) [partial sched::sched_setattr "no SCHED_DEADLINE: EINVAL"];
        315 sched_getattr(pid: Int, attributes: Pointer, size: Uint, flags: Flags) [complete sched::sched_getattr];
        309 getcpu(cpu: Pointer, node: Pointer, cache: Pointer) [complete sched::getcpu];
        251 ioprio_set(which: Int, who: Int, priority: Int) [complete ioprio::ioprio_set];
        252 ioprio_get(which: Int, who: Int) [complete ioprio::ioprio_get];
    }

    "Futexes" {
        202 futex(address: Word, operation: Int, value: Uint, timeout: Word, second: Word, third: Uint) [partial futex::futex "no priority inheritance"];
        273 set_robust_list(head: Pointer, size: Size) [complete futex::set_robust_list];
        274 get_robust_list(pid: Int, head: Pointer, size: Pointer) [complete futex::get_robust_list];
        334 rseq(area: Pointer, size: Uint, flags: Flags, signature: Flags) [complete futex::rseq];
        449 futex_waitv(waiters: Pointer, count: Uint, flags: Flags, timeout: Pointer, clock: Int) [complete futex::futex_waitv];
    }

    "Credentials" {
        102 getuid() [complete credentials::getuid];
        104 getgid() [complete credentials::getgid];
        107 geteuid() [complete credentials::geteuid];
        108 getegid() [complete credentials::getegid];
        105 setuid(user: Uint) [complete credentials::setuid];
        106 setgid(group: Uint) [complete credentials::setgid];
        113 setreuid(real: Uint, effective: Uint) [complete credentials::setreuid];
        114 setregid(real: Uint, effective: Uint) [complete credentials::setregid];
        117 setresuid(real: Uint, effective: Uint, saved: Uint) [complete credentials::setresuid];
        118 getresuid(real: Pointer, effective: Pointer, saved: Pointer) [complete credentials::getresuid];
        119 setresgid(real: Uint, effective: Uint, saved: Uint) [complete credentials::setresgid];
        120 getresgid(real: Pointer, effective: Pointer, saved: Pointer) [complete credentials::getresgid];
        122 setfsuid(user: Uint) [complete credentials::setfsuid];
        123 setfsgid(group: Uint) [complete credentials::setfsgid];
        115 getgroups(count: Int, groups: Pointer) [complete credentials::getgroups];
        116 setgroups(count: Int, groups: Pointer) [complete credentials::setgroups];
        125 capget(header: Pointer, data: Pointer) [complete credentials::capget];
        126 capset(header: Pointer, data: Pointer) [complete credentials::capset];
    }

    "System" {
        63 uname(buffer: Pointer) [complete system::uname];
        99 sysinfo(buffer: Pointer) [complete system::sysinfo];
        318 getrandom(buffer: Pointer, count: Size, flags: Flags) [complete system::getrandom];
        169 reboot(magic: Flags, second: Flags, command: Flags, argument: Pointer) [partial system::reboot "no kexec, no suspend"];
        170 sethostname(name: Pointer, length: Int) [complete system::sethostname];
        171 setdomainname(name: Pointer, length: Int) [complete system::setdomainname];
        103 syslog(kind: Int, buffer: Pointer, length: Int) [complete syslog::syslog];
    }

    "Sockets" {
        41 socket(family: Int, kind: Int, protocol: Int) [partial socket::socket "AF_UNIX, AF_INET, AF_INET6, AF_PACKET without SOCK_PACKET, NETLINK_ROUTE, NETLINK_SOCK_DIAG"];
        53 socketpair(family: Int, kind: Int, protocol: Int, fds: Pointer) [complete socket::socketpair];
        42 connect(fd: Fd, address: Pointer, length: Uint) [complete socket::connect];
        43 accept(fd: Fd, address: Pointer, length: Pointer) [complete socket::accept];
        288 accept4(fd: Fd, address: Pointer, length: Pointer, flags: Flags) [complete socket::accept4];
        44 sendto(fd: Fd, buffer: Pointer, count: Size, flags: Flags, address: Pointer, length: Uint) [complete socket::sendto];
        45 recvfrom(fd: Fd, buffer: Pointer, count: Size, flags: Flags, address: Pointer, length: Pointer) [complete socket::recvfrom];
        46 sendmsg(fd: Fd, message: Pointer, flags: Flags) [complete socket::sendmsg];
        47 recvmsg(fd: Fd, message: Pointer, flags: Flags) [complete socket::recvmsg];
        307 sendmmsg(fd: Fd, messages: Pointer, count: Uint, flags: Flags) [complete socket::sendmmsg];
        299 recvmmsg(fd: Fd, messages: Pointer, count: Uint, flags: Flags, timeout: Pointer) [complete socket::recvmmsg];
        48 shutdown(fd: Fd, how: Int) [complete socket::shutdown];
        49 bind(fd: Fd, address: Pointer, length: Uint) [complete socket::bind];
        50 listen(fd: Fd, backlog: Int) [complete socket::listen];
        51 getsockname(fd: Fd, address: Pointer, length: Pointer) [complete socket::getsockname];
        52 getpeername(fd: Fd, address: Pointer, length: Pointer) [complete socket::getpeername];
        54 setsockopt(fd: Fd, level: Int, option: Int, value: Pointer, length: Uint) [partial socket::setsockopt "the options that [network.md](network.md#options-of-sockets) lists"];
        55 getsockopt(fd: Fd, level: Int, option: Int, value: Pointer, length: Pointer) [partial socket::getsockopt "the options that [network.md](network.md#options-of-sockets) lists"];
    }

    "System V and POSIX message passing" {
        29 shmget(key: Int, size: Size, flags: Flags) [complete ipc::shm::shmget];
        30 shmat(id: Int, address: Word, flags: Flags) [complete ipc::shm::shmat];
        31 shmctl(id: Int, command: Int, buffer: Pointer) [complete ipc::shm::shmctl];
        67 shmdt(address: Word) [complete ipc::shm::shmdt];
        64 semget(key: Int, count: Int, flags: Flags) [complete ipc::sem::semget];
        65 semop(id: Int, operations: Pointer, count: Size) [complete ipc::sem::semop];
        66 semctl(id: Int, number: Int, command: Int, argument: Word) [complete ipc::sem::semctl];
        220 semtimedop(id: Int, operations: Pointer, count: Size, timeout: Pointer) [complete ipc::sem::semtimedop];
        68 msgget(key: Int, flags: Flags) [complete ipc::msg::msgget];
        69 msgsnd(id: Int, message: Pointer, size: Size, flags: Flags) [complete ipc::msg::msgsnd];
        70 msgrcv(id: Int, message: Pointer, size: Size, kind: Long, flags: Flags) [complete ipc::msg::msgrcv];
        71 msgctl(id: Int, command: Int, buffer: Pointer) [complete ipc::msg::msgctl];
        240 mq_open(name: Path, flags: Flags, mode: Mode, attributes: Pointer) [complete ipc::mq::mq_open];
        241 mq_unlink(name: Path) [complete ipc::mq::mq_unlink];
        242 mq_timedsend(queue: Fd, message: Pointer, size: Size, priority: Uint, timeout: Pointer) [complete ipc::mq::mq_timedsend];
        243 mq_timedreceive(queue: Fd, message: Pointer, size: Size, priority: Pointer, timeout: Pointer) [complete ipc::mq::mq_timedreceive];
        244 mq_notify(queue: Fd, event: Pointer) [complete ipc::mq::mq_notify];
        245 mq_getsetattr(queue: Fd, new: Pointer, old: Pointer) [complete ipc::mq::mq_getsetattr];
    }

    "Hayate's own: process transformation" {
        1000 hayate_space_open(source: Uint, flags: Flags) [complete own::space_open];
        1001 hayate_program_open(directory: Fd, path: Path, flags: Flags) [complete own::program_open];
        1002 hayate_change_space(space: Fd, flags: Flags) [complete own::change_space];
        1003 hayate_change_program(program: Fd, loaded: Pointer, flags: Flags) [complete own::change_program];
        1004 hayate_change_position(position: Pointer, size: Size) [complete registers own::change_position];
        1005 hayate_change(change: Pointer, size: Size) [complete registers own::change];
    }

    "Hayate's own: the running mode" {
        1010 switch_supervisor(pid: Int, flags: Flags) [complete mode::switch_supervisor];
        1011 switch_user(pid: Int) [complete mode::switch_user];
    }

    "Hayate's own: templates" {
        1020 hayate_template_ready(template: Pointer, size: Size) [complete registers templates::ready];
        1021 hayate_template_start(name: Path, arguments: Pointer, environment: Pointer) [complete registers templates::start];
        1022 hayate_template_remove(name: Path, owner: Int) [complete templates::remove];
        1023 hayate_template_bind(path: Path, name: Path) [complete templates::bind];
    }

    "Not for a guest kernel of this kind" {
        134 uselib(path: Path) [none "removed from Linux configurations of today"];
        139 sysfs(option: Int, first: Word, second: Word) [none "obsolete"];
        154 modify_ldt(function: Int, pointer: Pointer, count: Size) [none "no 16-bit segments"];
        156 _sysctl(arguments: Pointer) [none "removed in Linux 5.5"];
        163 acct(path: Path) [partial system::acct "no ASU in the flags; the file keeps its file system busy"];
        167 swapon(path: Path, flags: Flags) [none "no swap"];
        168 swapoff(path: Path) [none "no swap"];
        172 iopl(level: Uint) [none "no I/O ports for programs"];
        173 ioperm(from: Word, count: Word, on: Int) [none "no I/O ports for programs"];
        174 create_module(name: Path, size: Size) [none "removed in Linux 2.6"];
        175 init_module(image: Pointer, length: Size, parameters: Path) [none "no kernel modules"];
        176 delete_module(name: Path, flags: Flags) [none "no kernel modules"];
        177 get_kernel_syms(table: Pointer) [none "removed in Linux 2.6"];
        178 query_module(name: Path, which: Int, buffer: Pointer, size: Size, result: Pointer) [none "removed in Linux 2.6"];
        179 quotactl(command: Flags, special: Path, id: Int, address: Pointer) [none "no quotas"];
        180 nfsservctl(command: Int, argument: Pointer, response: Pointer) [none "removed in Linux 3.1"];
        181 getpmsg() [none "never existed"];
        182 putpmsg() [none "never existed"];
        183 afs_syscall() [none "never existed"];
        184 tuxcall() [none "never existed"];
        185 security() [none "never existed"];
        205 set_thread_area(area: Pointer) [none "32-bit only"];
        211 get_thread_area(area: Pointer) [none "32-bit only"];
        212 lookup_dcookie(cookie: Word, buffer: Pointer, length: Size) [none "no OProfile"];
        214 epoll_ctl_old() [none "never existed"];
        215 epoll_wait_old() [none "never existed"];
        236 vserver() [none "never existed"];
        246 kexec_load(entry: Word, count: Size, segments: Pointer, flags: Flags) [none "no kexec"];
        248 add_key(kind: Path, description: Path, payload: Pointer, size: Size, keyring: Int) [none "no key rings"];
        249 request_key(kind: Path, description: Path, callout: Path, keyring: Int) [none "no key rings"];
        250 keyctl(operation: Int, second: Word, third: Word, fourth: Word, fifth: Word) [none "no key rings"];
        298 perf_event_open(attributes: Pointer, pid: Int, cpu: Int, group: Fd, flags: Flags) [none "no performance counters"];
        300 fanotify_init(flags: Flags, event_flags: Flags) [none "no fanotify"];
        301 fanotify_mark(fd: Fd, flags: Flags, mask: Word, directory: Fd, path: Path) [none "no fanotify"];
        313 finit_module(fd: Fd, parameters: Path, flags: Flags) [none "no kernel modules"];
        320 kexec_file_load(kernel: Fd, initrd: Fd, length: Size, line: Path, flags: Flags) [none "no kexec"];
        321 bpf(command: Int, attributes: Pointer, size: Uint) [partial bpf::bpf "programs about devices of control groups alone, without stack, maps, helper functions and loops; else EINVAL"];
        425 io_uring_setup(entries: Uint, parameters: Pointer) [none "no io_uring"];
        426 io_uring_enter(fd: Fd, submit: Uint, complete: Uint, flags: Flags, mask: Pointer, size: Size) [none "no io_uring"];
        427 io_uring_register(fd: Fd, operation: Uint, argument: Pointer, count: Uint) [none "no io_uring"];
        443 quotactl_fd(fd: Fd, command: Flags, id: Int, address: Pointer) [none "no quotas"];
        444 landlock_create_ruleset(attributes: Pointer, size: Size, flags: Flags) [complete landlock::create_ruleset];
        445 landlock_add_rule(ruleset: Fd, kind: Int, attributes: Pointer, flags: Flags) [complete landlock::add_rule];
        446 landlock_restrict_self(ruleset: Fd, flags: Flags) [complete landlock::restrict_self];
        447 memfd_secret(flags: Flags) [none "no secret memory"];
    }
}
