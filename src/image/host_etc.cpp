#include "image/host_etc.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "image/files.h"

namespace caisson::image {
namespace {

struct Account {
  std::string_view name;
  unsigned uid, gid;
  std::string_view home;
};
// Debian's usual system accounts, so that archives and packages that name them work.
constexpr Account kAccounts[] = {{"daemon", 1, 1, "/usr/sbin"},
                                 {"bin", 2, 2, "/bin"},
                                 {"sys", 3, 3, "/dev"},
                                 {"games", 5, 60, "/usr/games"},
                                 {"man", 6, 12, "/var/cache/man"},
                                 {"lp", 7, 7, "/var/spool/lpd"},
                                 {"mail", 8, 8, "/var/mail"},
                                 {"news", 9, 9, "/var/spool/news"},
                                 {"uucp", 10, 10, "/var/spool/uucp"},
                                 {"proxy", 13, 13, "/bin"},
                                 {"www-data", 33, 33, "/var/www"},
                                 {"backup", 34, 34, "/var/backups"},
                                 {"list", 38, 38, "/var/list"},
                                 {"irc", 39, 39, "/run/ircd"},
                                 {"nobody", 65534, 65534, "/nonexistent"}};

struct Group {
  std::string_view name;
  unsigned gid;
};
constexpr Group kGroups[] = {
    {"root", 0},      {"daemon", 1},  {"bin", 2},        {"sys", 3},       {"adm", 4},
    {"tty", 5},       {"disk", 6},    {"lp", 7},         {"mail", 8},      {"news", 9},
    {"uucp", 10},     {"man", 12},    {"proxy", 13},     {"kmem", 15},     {"dialout", 20},
    {"fax", 21},      {"voice", 22},  {"cdrom", 24},     {"floppy", 25},   {"tape", 26},
    {"sudo", 27},     {"audio", 29},  {"dip", 30},       {"www-data", 33}, {"backup", 34},
    {"operator", 37}, {"list", 38},   {"irc", 39},       {"src", 40},      {"shadow", 42},
    {"utmp", 43},     {"video", 44},  {"sasl", 45},      {"plugdev", 46},  {"staff", 50},
    {"games", 60},    {"users", 100}, {"nogroup", 65534}};

constexpr std::string_view kServices =
    "ftp 21/tcp\nssh 22/tcp\ntelnet 23/tcp\nsmtp 25/tcp mail\ndomain 53/tcp\ndomain 53/udp\n"
    "http 80/tcp www\nhttp 80/udp\npop3 110/tcp\nntp 123/udp\nimap2 143/tcp imap\nldap 389/tcp\n"
    "https 443/tcp\nhttps 443/udp\nsubmission 587/tcp\nldaps 636/tcp\nimaps 993/tcp\n"
    "pop3s 995/tcp\nmysql 3306/tcp\npostgresql 5432/tcp\nredis 6379/tcp\n";
constexpr std::string_view kProtocols =
    "ip 0 IP\nicmp 1 ICMP\nigmp 2 IGMP\ntcp 6 TCP\nudp 17 UDP\nipv6 41 IPv6\n"
    "ipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\n";
constexpr std::string_view kProfile =
    "export PATH=\"${PATH:-/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin}\"\n"
    "[ -z \"$BASH_VERSION\" ] || [ ! -r /etc/bash.bashrc ] || . /etc/bash.bashrc\n";
constexpr std::string_view kBashrc = "case $- in *i*) PS1='\\u@\\h:\\w\\$ ' ;; esac\n";

std::string passwd(const HostUser& user) {
  std::string text = "root:x:0:0:root:/root:/bin/bash\n";
  for (const Account& account : kAccounts) {
    if (account.name == user.name || account.uid == user.uid) continue;
    text.append(account.name).append(":x:").append(std::to_string(account.uid));
    text.append(":").append(std::to_string(account.gid)).append(":").append(account.name);
    text.append(":").append(account.home).append(":/usr/sbin/nologin\n");
  }
  if (user.uid != 0) {
    text += user.name + ":x:" + std::to_string(user.uid) + ":" + std::to_string(user.gid) +
            "::" + user.home + ":" + user.shell + "\n";
  }
  return text;
}

std::string group(const HostUser& user) {
  std::string text;
  for (const Group& entry : kGroups) {
    if (user.uid != 0 && (entry.name == user.name || entry.gid == user.gid)) continue;
    text.append(entry.name).append(":x:").append(std::to_string(entry.gid)).append(":");
    if (entry.name == "sudo" && user.uid != 0) text += user.name;
    text += "\n";
  }
  if (user.uid != 0) text += user.name + ":x:" + std::to_string(user.gid) + ":\n";
  return text;
}

std::string shadow(const HostUser& user) {
  std::string text = "root:*:20000:0:99999:7:::\n";
  for (const Account& account : kAccounts) {
    if (account.name == user.name || account.uid == user.uid) continue;
    text.append(account.name).append(":*:20000:0:99999:7:::\n");
  }
  if (user.uid != 0) text += user.name + ":*:20000:0:99999:7:::\n";
  return text;
}

std::string nsswitch(std::string_view hosts) {
  return "passwd: files\ngroup: files\nshadow: files\nhosts: " + std::string(hosts) +
         "\nnetworks: files\nprotocols: files\nservices: files\n";
}

bool acceptable(const struct stat& status) {
  if (status.st_uid != 0 || (status.st_mode & S_IWOTH) != 0) return false;
  if (S_ISREG(status.st_mode)) return (status.st_mode & S_IROTH) != 0;
  return S_ISDIR(status.st_mode) && (status.st_mode & 0005) == 0005;
}

// Opens `path` component by component through no link; a link as the last component is found by the
// caller.
Fd open_entry(int etc_fd, const std::string& path) {
  Fd at(fcntl(etc_fd, F_DUPFD_CLOEXEC, 3));
  for (std::size_t begin = 0; at.valid();) {
    const std::size_t slash = path.find('/', begin);
    const std::string part = path.substr(begin, slash == std::string::npos ? slash : slash - begin);
    at = Fd(openat(at.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (slash == std::string::npos) break;
    begin = slash + 1;
  }
  return at;
}

// A link of the host's /etc is shown as a link, when it leads below /usr, which is shown anyway.
std::string link_below_usr(int link_fd, const std::string& path) {
  char buffer[1024];
  const ssize_t size = readlinkat(link_fd, "", buffer, sizeof buffer);
  if (size <= 0 || static_cast<std::size_t>(size) == sizeof buffer) return {};
  const std::string target(buffer, static_cast<std::size_t>(size));
  if (target.starts_with("/usr/")) return target.find("/../") == std::string::npos ? target : "";
  std::string up;
  for (auto depth = std::ranges::count(path, '/') + 1; depth > 0; --depth) up += "../";
  if (!target.starts_with(up + "usr/")) return {};
  return target.find("/../", up.size()) == std::string::npos ? target : "";
}

Result<bool> has_secret_name(int directory_fd) {
  TRY_ASSIGN(std::vector<std::string> names, list_directory(directory_fd));
  return std::ranges::any_of(names, [](const std::string& name) { return looks_secret(name); });
}

}  // namespace

std::vector<GeneratedFile> sandbox_files(std::string_view hostname, std::string_view machine_id,
                                         std::string_view name_server) {
  const std::string name(hostname);
  // It is beside the sandbox, and answers at once or not at all.
  const std::string resolver = name_server.empty() ? "# This sandbox has no name server.\n"
                                                   : "nameserver " + std::string(name_server) +
                                                         "\noptions timeout:2 attempts:2\n";
  return {
      {"/etc/hostname", 0644, name + "\n"},
      {"/etc/hosts", 0644,
       "127.0.0.1 localhost\n127.0.1.1 " + name + "\n::1 localhost ip6-localhost ip6-loopback\n"},
      {"/etc/resolv.conf", 0644, resolver},
      {"/etc/machine-id", 0444, std::string(machine_id) + "\n"},
  };
}

GeneratedFile nsswitch_with_dns() {
  return {"/etc/nsswitch.conf", 0644, nsswitch("files dns")};
}

std::vector<GeneratedFile> host_files(std::string_view hostname, std::string_view machine_id,
                                      const HostUser& user) {
  std::vector<GeneratedFile> files = sandbox_files(hostname, machine_id, "");
  auto add = [&](std::string_view path, std::string_view contents, mode_t mode = 0644) {
    files.push_back({"/etc/" + std::string(path), mode, std::string(contents)});
  };
  add("passwd", passwd(user));
  add("group", group(user));
  add("shadow", shadow(user), 0640);
  add("nsswitch.conf", nsswitch("files"));
  add("host.conf", "multi on\n");
  add("services", kServices);
  add("protocols", kProtocols);
  add("shells", "/bin/sh\n/usr/bin/sh\n/bin/bash\n/usr/bin/bash\n");
  add("profile", kProfile);
  add("bash.bashrc", kBashrc);
  add("environment", "");
  add("fstab", "");
  add("issue", "Caisson sandbox\n");
  add("timezone", "Etc/UTC\n");
  add("localtime", "/usr/share/zoneinfo/Etc/UTC", S_IFLNK | 0777);
  add("mtab", "../proc/self/mounts", S_IFLNK | 0777);
  add("os-release", "../usr/lib/os-release", S_IFLNK | 0777);
  return files;
}

std::vector<std::string> host_etc_allowlist() {
  return {
      // the dynamic linker
      "ld.so.cache",
      "ld.so.conf",
      "ld.so.conf.d",
      // which of several programs a name means
      "alternatives",
      // public certificate authorities and OpenSSL's settings; never the machine's own certificates
      "ssl/certs/ca-certificates.crt",
      "ssl/certs/java/cacerts",
      "ssl/openssl.cnf",
      "pki/tls/openssl.cnf",
      "pki/ca-trust/extracted",
      "crypto-policies",
      // settings that a language's or library's package keeps here
      "python3",
      "python3.*",
      "java-*-openjdk",
      "fonts",
      "ImageMagick-*",
      "gtk-3.0",
      "OpenCL",
      // facts about file types, terminals and protocols
      "mime.types",
      "magic",
      "magic.mime",
      "terminfo",
      "inputrc",
      "gai.conf",
      "xattr.conf",
      "locale.alias",
      "debian_version",
      "libaudit.conf",
      "rpc",
      "ethertypes",
  };
}

bool looks_secret(std::string_view file_name) {
  std::string lower(file_name);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  // Templates that packages ship beside the real thing are public.
  if (lower.ends_with(".template")) return false;
  for (std::string_view end : {".key", "_key", ".p12", ".pfx", ".jks", ".keytab", ".password",
                               ".passwd", ".netrc", ".pgpass"}) {
    if (lower.ends_with(end)) return true;
  }
  for (std::string_view begin : {"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "private", "secret",
                                 "shadow", "gshadow", "htpasswd", ".htpasswd", "credentials"}) {
    if (lower.starts_with(begin) && !lower.ends_with(".pub")) return true;
  }
  return false;
}

Result<std::vector<HostEtcEntry>> open_host_etc(int etc_fd) {
  std::vector<std::string> paths;
  std::vector<std::string> names;
  for (std::string& allowed : host_etc_allowlist()) {
    if (allowed.find('*') == std::string::npos) {
      paths.push_back(std::move(allowed));
      continue;
    }
    if (names.empty()) {
      TRY_ASSIGN(names, list_directory(etc_fd));
    }
    for (const std::string& name : names) {
      if (fnmatch(allowed.c_str(), name.c_str(), FNM_PERIOD) == 0) paths.push_back(name);
    }
  }
  std::vector<HostEtcEntry> entries;
  for (std::string& path : paths) {
    HostEtcEntry entry{.path = std::move(path)};
    entry.fd = open_entry(etc_fd, entry.path);
    struct stat status = {};
    if (!entry.fd.valid() || fstat(entry.fd.get(), &status) != 0) continue;
    if (S_ISLNK(status.st_mode)) {
      entry.target = link_below_usr(entry.fd.get(), entry.path);
      if (entry.target.empty() || status.st_uid != 0) continue;
      entry.kind = HostEtcKind::kLink;
      entry.fd.reset();
    } else if (!acceptable(status)) {
      continue;
    } else if (S_ISDIR(status.st_mode)) {
      entry.kind = HostEtcKind::kDirectory;
      TRY_ASSIGN(const bool secret, has_secret_name(entry.fd.get()));
      if (secret) continue;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace caisson::image
