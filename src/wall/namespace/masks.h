// What of /proc a sandbox does not see or cannot write. Files that only global root may read need
// no mask, since no id of a sandbox is global root; these are the ones that the world may read and
// that tell about the host, its kernel or its other users.
#pragma once

namespace caisson::wall {

inline constexpr const char* kMaskedProc[] = {
    "acpi",          "asound",     "bootconfig",
    "bus",           "cmdline",    "config.gz",
    "consoles",      "crypto",     "devices",
    "diskstats",     "driver",     "dynamic_debug",
    "execdomains",   "fb",         "fs",
    "interrupts",    "iomem",      "ioports",
    "irq",           "kallsyms",   "kcore",
    "key-users",     "keys",       "kmsg",
    "latency_stats", "locks",      "mdstat",
    "misc",          "modules",    "mtrr",
    "partitions",    "pressure",   "sched_debug",
    "schedstat",     "scsi",       "slabinfo",
    "softirqs",      "swaps",      "sysrq-trigger",
    "timer_list",    "tty",        "vmallocinfo",
    "zoneinfo",      "buddyinfo",  "pagetypeinfo",
    "kpagecount",    "kpageflags", "kpagecgroup",
};

// Bound onto themselves read-only, before the masks go on.
inline constexpr const char* kReadOnlyProc[] = {"sys"};

}  // namespace caisson::wall
