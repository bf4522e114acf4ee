// The kernel's own headers, in one place.
//
// Include this and never <linux/…> or <asm/…> directly (`./dev lint` checks it). Some of those
// headers mean something else in C++ than in C, some clash with the C library's, and Debian 12's
// are those of Linux 6.1: what newer kernels added and we use is defined at the end, with the
// kernel's own names and values, under #ifndef so that newer headers win. Defining a number here
// says nothing about the running kernel, so every user of one handles ENOSYS or EINVAL. Constants
// only; no state.
#pragma once

#include <linux/stddef.h>

// In C++ an empty struct has size one, which moves every flexible array that this macro declares.
#undef __DECLARE_FLEX_ARRAY
#define __DECLARE_FLEX_ARRAY(TYPE, NAME) TYPE NAME[0]

// First: where both define something, the kernel's headers then leave it to this one.
#include <netinet/in.h>

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf_common.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/landlock.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <linux/sockios.h>
#include <linux/types.h>
#include <linux/unistd.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// System calls younger than the headers (the numbers are the same on x86-64 and arm64).
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_statmount
#define __NR_statmount 457
#endif
#ifndef __NR_listmount
#define __NR_listmount 458
#endif
#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#endif

// Landlock, by the ABI version that brought it.
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE  // 3
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_NET_BIND_TCP  // 4
#define LANDLOCK_ACCESS_NET_BIND_TCP (1ULL << 0)
#define LANDLOCK_ACCESS_NET_CONNECT_TCP (1ULL << 1)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV  // 5
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif
#ifndef LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET  // 6
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define LANDLOCK_SCOPE_SIGNAL (1ULL << 1)
#endif

// Mounts: a path below another mount (6.5).
#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

// memfd_create (6.3).
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#define MFD_EXEC 0x0010U
#endif

// Seccomp's listener (6.6).
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

// prctl (6.3): no memory of this process becomes executable after it was writable.
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

// Of ext4's own header, which is not among the kernel's public ones: nothing more is written.
#ifndef EXT4_IOC_SHUTDOWN
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, __u32)
#define EXT4_GOING_FLAGS_NOLOGFLUSH 2
#endif

namespace caisson::abi {

// The whole of landlock_ruleset_attr as ABI 6 has it; 6.1's header knows the first member alone.
// Pass the size that the running kernel's ABI knows: 8 below 4, 16 below 6, else 24.
struct landlock_ruleset {
  __u64 handled_access_fs;
  __u64 handled_access_net;
  __u64 scoped;
};
static_assert(sizeof(landlock_ruleset) == 24);

}  // namespace caisson::abi

static_assert(sizeof(clone_args) == CLONE_ARGS_SIZE_VER2);
static_assert(sizeof(mount_attr) == 32);
