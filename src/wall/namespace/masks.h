// What of /proc a sandbox does not see or cannot write. Files that only global root may read need
// no mask, since no id of a sandbox is global root; these are the ones that the world may read and
// that tell about the host, its kernel or its other users.
#pragma once

namespace caisson::wall {

inline constexpr const char* kMaskedProc[] = {
    "acpi",          "buddyinfo",     "zoneinfo",    "asound",     "bootconfig",
    "bus",           "cmdline",       "config.gz",   "devices",    "diskstats",
    "driver",        "dynamic_debug", "fs",          "interrupts", "iomem",
    "ioports",       "irq",           "kallsyms",    "kcore",      "key-users",
    "keys",          "kmsg",          "kpagecgroup", "kpagecount", "kpageflags",
    "latency_stats", "locks",         "modules",     "mtrr",       "pagetypeinfo",
    "partitions",    "pressure",      "sched_debug", "scsi",       "slabinfo",
    "swaps",         "sysrq-trigger", "timer_list",  "tty",        "vmallocinfo",
};

// Bound onto themselves read-only, before the masks go on.
inline constexpr const char* kReadOnlyProc[] = {"sys"};

}  // namespace caisson::wall
