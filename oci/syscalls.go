package oci

import (
	"slices"
	"strings"
)

// allowedSyscalls returns, sorted, the calls that every sandbox may make with any arguments.
// The OCI runtime ignores names that an architecture lacks. The default profile of the containers
// ecosystem also allows each call, which a test checks.
//
// That profile allows some calls that are missing here: memfd_secret, modify_ldt, name_to_handle_at,
// process_vm_readv and process_vm_writev, process_mrelease, remap_file_pages, splice, vmsplice,
// adjtimex, socketcall, listmount, statmount, and asynchronous I/O: io_uring bypasses this filter,
// and the whole host shares the slots of io_setup. ptrace is here for debuggers and leak checkers.
// Since Linux 4.8, a tracer cannot change a call after the filter has judged it.
func allowedSyscalls() []string {
	groups := []string{
		// files by descriptor; ioctl has its own rules
		`close close_range copy_file_range dup dup2 dup3 fallocate fdatasync flock fsync ftruncate
		 getdents getdents64 lseek pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readv
		 sendfile sync_file_range tee write writev pipe pipe2`,
		// files by name
		`access chdir chmod chown creat faccessat faccessat2 fchdir fchmod fchmodat fchmodat2 fchown fchownat fstat fstatfs
		 futimesat getcwd lchown link linkat lstat mkdir mkdirat newfstatat open openat openat2 readlink readlinkat
		 rename renameat renameat2 rmdir stat statfs statx symlink symlinkat truncate umask unlink
		 unlinkat utime utimensat utimes`,
		// extended attributes
		`fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr lsetxattr
		 removexattr setxattr`,
		// waiting for descriptors and events
		`epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_add_watch
		 inotify_init inotify_init1 inotify_rm_watch poll ppoll pselect6 select signalfd signalfd4 timerfd_create
		 timerfd_gettime timerfd_settime`,
		// memory; madvise, memfd_create and mmap have their own rules
		`brk map_shadow_stack membarrier mincore mlock mlock2 mlockall mprotect mremap mseal msync munlock
		 munlockall munmap pkey_alloc pkey_free pkey_mprotect`,
		// processes and threads
		`arch_prctl execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake
		 get_robust_list get_thread_area getcpu getpgid getpgrp getpid getppid getpriority getrusage getsid gettid kill
		 pidfd_open pidfd_send_signal ptrace restart_syscall rseq set_robust_list set_thread_area
		 set_tid_address setpgid setpriority setsid tgkill tkill vfork wait4 waitid`,
		// scheduling; ioprio_set has its own rule
		`ioprio_get sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
		 sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
		 sched_setscheduler sched_yield`,
		// credentials; without capabilities a process can only give up privileges
		`capget capset getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups
		 setregid setresgid setresuid setreuid setuid`,
		// limits; prlimit64 and setrlimit have their own rules
		`getrlimit`,
		// signals
		`pause rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
		 rt_tgsigqueueinfo sigaltstack`,
		// time
		`alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
		 timer_delete timer_getoverrun timer_gettime timer_settime times`,
		// System V and POSIX communication, private to the sandbox's IPC namespace
		`mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl
		 semget semop semtimedop shmat shmctl shmdt`,
		// sockets; socket, socketpair, getsockopt and setsockopt have their own rules
		`accept accept4 bind connect getpeername getsockname listen recvfrom recvmmsg recvmsg sendmmsg
		 sendmsg sendto shutdown`,
		// the system
		`getrandom sysinfo uname`,
	}
	names := strings.Fields(strings.Join(groups, " "))
	slices.Sort(names)
	return names
}
