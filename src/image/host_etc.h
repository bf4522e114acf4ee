// The /etc of the `host` image, whose /usr is the host's own: written from nothing, so that it
// names no account, no machine and no secret of the host, plus the few of the host's own files that
// programs need and that are public by nature. The same per-sandbox files (hosts, hostname,
// resolv.conf, machine-id) go over the /etc of real images too.
//
// Rules for the allowlist: an entry is left out when it is absent, not root's, not readable by all,
// writable by others, or a directory in which a name looks like a private key or a password file.
// No entry is a place where administrators put credentials (git, npm, pip, curl configuration), the
// machine's own certificates, or names of the local network. Reads /etc, writes nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::image {

struct GeneratedFile {
  std::string path;      // absolute, inside
  mode_t mode = 0644;    // with S_IFLNK: a symbolic link whose target is `contents`
  std::string contents;  // owner is root
};

// The one ordinary account of the `host` image.
struct HostUser {
  std::string name = "user";
  std::uint32_t uid = 1000, gid = 1000;
  std::string home = "/home/user";
  std::string shell = "/bin/bash";
};

// The files that differ per sandbox: /etc/hosts, hostname, resolv.conf, machine-id. `machine_id` is
// 32 hexadecimal digits, `name_server` an address or empty. All are the caller's and valid already
// (the spec checks the host name).
std::vector<GeneratedFile> sandbox_files(std::string_view hostname, std::string_view machine_id,
                                         std::string_view name_server);
// The `host` image's nsswitch.conf for a sandbox with a name server; host_files() has the other
// one, with which nobody asks for one and waits.
GeneratedFile nsswitch_with_dns();

// Everything that the `host` image's /etc has of its own: sandbox_files() and passwd, group, shadow
// (locked), nsswitch.conf, services, protocols, shells, profile, bash.bashrc, os-release and more.
std::vector<GeneratedFile> host_files(std::string_view hostname, std::string_view machine_id,
                                      const HostUser& user = {});

// Paths relative to /etc that may be shown read-only; '*' stands for any characters within one
// name.
std::vector<std::string> host_etc_allowlist();

enum class HostEtcKind { kFile, kDirectory, kLink };
struct HostEtcEntry {
  std::string path;  // relative to /etc
  HostEtcKind kind = HostEtcKind::kFile;
  Fd fd;               // O_PATH; for a link none
  std::string target;  // of a link; it leads below /usr
};

// The allowlist's entries that exist below `etc_fd` and pass the rules, opened through no symbolic
// link.
Result<std::vector<HostEtcEntry>> open_host_etc(int etc_fd);

// Whether a file name looks like a private key or a list of passwords.
bool looks_secret(std::string_view file_name);

}  // namespace caisson::image
