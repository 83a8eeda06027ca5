"""Names of the standard library that Windows lacks, read off its documentation ("Availability: Unix")."""

# ruff: noqa: SIM905 - as lists these would be two hundred lines

ABSENT_MODULES = frozenset(
    """
    crypt fcntl grp nis posix pty pwd resource spwd syslog termios tty _posixsubprocess
    """.split()
)
OS_ABSENT = frozenset(
    """
    chown chroot confstr ctermid eventfd fchdir fchmod fchown fork forkpty fstatvfs fwalk getegid
    geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid
    getsid getuid initgroups killpg lchmod lchown lockf major makedev memfd_create minor mkfifo
    mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn
    posix_spawnp pread preadv pwrite pwritev register_at_fork sched_getaffinity
    sched_get_priority_max sched_getparam sched_setaffinity sched_yield sendfile setegid seteuid
    setgid setgroups setpgid setpgrp setpriority setregid setreuid setsid setuid splice statvfs sync
    sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid writev WIFSIGNALED WTERMSIG
    WNOHANG O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_EXLOCK O_LARGEFILE O_NDELAY O_NOATIME
    O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SHLOCK O_SYNC O_TMPFILE
    """.split()
)
SIGNALS_PRESENT = frozenset(
    """
    SIGABRT SIGFPE SIGILL SIGINT SIGSEGV SIGTERM SIG_DFL SIG_IGN Signals Handlers
    default_int_handler getsignal raise_signal set_wakeup_fd signal strsignal valid_signals
    """.split()
)
FAULTHANDLER_ABSENT = frozenset({"register", "unregister"})
