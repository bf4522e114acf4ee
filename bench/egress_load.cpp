// Asks a server over HTTP/1.1, and is one, without an interpreter in the figure.
//
//   egress_load serve PORT [PEM]     answers GET /BYTES; over TLS with this key and certificate
//   egress_load ask WORD…            one line: the microseconds of each request, as JSON
//   egress_load hold WORD…           opens connections, asks once on each and says "open N failed
//                                    M"; after a line of input asks again on each and says
//                                    "answered N failed M"
//
// WORDs: name=NAME and port=N of the server (looked up once), tls (its certificate is not
// verified), proxy=HOST:PORT (asked with CONNECT), bytes=N of each answer, kept (one connection for
// all requests, which is open before the clock starts; else one for each, from connect to the
// answer's last byte), count=N requests of each of at_once=N threads, pause_us=N (each waits so
// long before a request, on average). Sessions are not resumed.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = 256 * 1024;
constexpr std::size_t kServerStack = 128 * 1024;
constexpr int kBacklog = 4096;
constexpr int kSecondsToWait = 60;

struct Fault : std::runtime_error {
  using runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string& what) {
  throw Fault(what + ": " + std::strerror(errno));
}

// A connection, with or without TLS. Owns its descriptor.
class Link {
 public:
  explicit Link(int fd) : fd_(fd) {
    const int yes = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const timeval most{kSecondsToWait, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  }
  ~Link() {
    if (ssl_ != nullptr) {
      SSL_shutdown(ssl_);
      SSL_free(ssl_);
    }
    ::close(fd_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  enum class Side { kClient, kServer };
  void secure(SSL_CTX* context, Side side, const std::string& name) {
    ssl_ = SSL_new(context);
    SSL_set_fd(ssl_, fd_);
    if (side == Side::kClient) SSL_set_tlsext_host_name(ssl_, name.c_str());
    const int done = side == Side::kClient ? SSL_connect(ssl_) : SSL_accept(ssl_);
    if (done != 1) {
      const char* reason = ERR_reason_error_string(ERR_get_error());
      throw Fault(std::string("no TLS: ") + (reason == nullptr ? "the end" : reason));
    }
  }

  // 0: the end.
  std::size_t read(char* into, std::size_t room) {
    const long got = ssl_ != nullptr ? SSL_read(ssl_, into, static_cast<int>(room))
                                     : static_cast<long>(::recv(fd_, into, room, 0));
    if (got > 0) return static_cast<std::size_t>(got);
    ERR_clear_error();
    if (ssl_ == nullptr && got < 0) fail("recv");
    return 0;
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const long put =
          ssl_ != nullptr
              ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
              : static_cast<long>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
      if (put <= 0) fail("send");
      bytes.remove_prefix(static_cast<std::size_t>(put));
    }
  }
  // A message's head, with what was read behind it in `rest`. Empty: the end.
  std::string head(std::string& rest) {
    std::array<char, 4096> piece;
    std::string bytes = std::move(rest);
    for (;;) {
      const std::size_t end = bytes.find("\r\n\r\n");
      if (end != std::string::npos) {
        rest = bytes.substr(end + 4);
        bytes.resize(end + 4);
        return bytes;
      }
      const std::size_t got = read(piece.data(), piece.size());
      if (got == 0) return {};
      bytes.append(piece.data(), got);
    }
  }

 private:
  int fd_;
  SSL* ssl_ = nullptr;
};

// ---- the server ---------------------------------------------------------------------------------

struct Served {
  int fd;
  SSL_CTX* context;
};

void answer(Link& link) {
  static const std::string block(kPiece, '\0');
  std::string rest;
  for (;;) {
    const std::string head = link.head(rest);
    if (head.empty()) return;
    std::size_t size = std::strtoull(head.c_str() + std::strlen("GET /"), nullptr, 10);
    const bool last = head.contains("Connection: close");
    std::string first = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(size) + "\r\n" +
                        (last ? "Connection: close\r\n\r\n" : "\r\n");
    // A small answer is one piece.
    const std::size_t begun = std::min<std::size_t>(size, 4096);
    first.append(begun, '\0');
    link.write(first);
    for (size -= begun; size > 0;) {
      const std::size_t part = std::min(size, block.size());
      link.write(std::string_view(block).substr(0, part));
      size -= part;
    }
    if (last) return;
  }
}

void* serve_one(void* given) {
  const std::unique_ptr<Served> served(static_cast<Served*>(given));
  try {
    Link link(served->fd);
    if (served->context != nullptr) link.secure(served->context, Link::Side::kServer, "");
    answer(link);
  } catch (const Fault&) {
    // Clients break off.
  }
  return nullptr;
}

int serve(const char* port, const char* pem) {
  SSL_CTX* context = nullptr;
  if (pem != nullptr) {
    context = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context, pem) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, pem, SSL_FILETYPE_PEM) != 1)
      throw Fault(std::string("no key or certificate in ") + pem);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  }
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, kBacklog) != 0)
    fail("listen");
  std::puts("up");
  std::fflush(stdout);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kServerStack);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      ::usleep(1000);
      continue;
    }
    auto served = std::make_unique<Served>(fd, context);
    pthread_t thread;
    if (pthread_create(&thread, &small, serve_one, served.get()) != 0) {
      ::close(fd);
      continue;
    }
    static_cast<void>(served.release());
  }
}

// ---- the client ---------------------------------------------------------------------------------

struct Asked {
  std::string name, proxy;
  int port = 0;
  bool tls = false, kept = false;
  std::size_t bytes = 0, count = 1, at_once = 1;
  long pause_us = 0;
  sockaddr_storage address{};
  socklen_t length = 0;
  SSL_CTX* context = nullptr;
};

Asked read_words(char** words) {
  Asked asked;
  for (; *words != nullptr; ++words) {
    const std::string word = *words;
    const std::string key = word.substr(0, word.find('='));
    const std::string value = word.contains('=') ? word.substr(word.find('=') + 1) : "";
    if (key == "name")
      asked.name = value;
    else if (key == "proxy")
      asked.proxy = value;
    else if (key == "port")
      asked.port = std::atoi(value.c_str());
    else if (key == "tls")
      asked.tls = true;
    else if (key == "kept")
      asked.kept = true;
    else if (key == "bytes")
      asked.bytes = std::strtoull(value.c_str(), nullptr, 10);
    else if (key == "count")
      asked.count = std::strtoull(value.c_str(), nullptr, 10);
    else if (key == "at_once")
      asked.at_once = std::strtoull(value.c_str(), nullptr, 10);
    else if (key == "pause_us")
      asked.pause_us = std::atol(value.c_str());
    else
      throw Fault("no word '" + word + "'");
  }
  const bool direct = asked.proxy.empty();
  const std::string host = direct ? asked.name : asked.proxy.substr(0, asked.proxy.find(':'));
  const std::string port =
      direct ? std::to_string(asked.port) : asked.proxy.substr(asked.proxy.find(':') + 1);
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); error != 0)
    throw Fault(host + ": " + ::gai_strerror(error));
  asked.length = found->ai_addrlen;
  std::memcpy(&asked.address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  asked.context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_verify(asked.context, SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_session_cache_mode(asked.context, SSL_SESS_CACHE_OFF);
  return asked;
}

std::unique_ptr<Link> open(const Asked& asked) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  auto link = std::make_unique<Link>(fd);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&asked.address), asked.length) != 0)
    fail("connect");
  if (!asked.proxy.empty()) {
    const std::string host = asked.name + ":" + std::to_string(asked.port);
    link->write("CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    std::string rest;
    const std::string head = link->head(rest);
    if (!head.starts_with("HTTP/1.1 200") && !head.starts_with("HTTP/1.0 200"))
      throw Fault("the proxy: " + head.substr(0, head.find('\r')));
  }
  if (asked.tls) link->secure(asked.context, Link::Side::kClient, asked.name);
  return link;
}

void ask(Link& link, const Asked& asked, char* room) {
  const bool usual = asked.port == (asked.tls ? 443 : 80);
  link.write("GET /" + std::to_string(asked.bytes) + " HTTP/1.1\r\nHost: " + asked.name +
             (usual ? "" : ":" + std::to_string(asked.port)) +
             (asked.kept ? "\r\n\r\n" : "\r\nConnection: close\r\n\r\n"));
  std::string rest;
  const std::string head = link.head(rest);
  if (!head.starts_with("HTTP/1.1 200"))
    throw Fault("the answer: " + (head.empty() ? "the end" : head.substr(0, head.find('\r'))));
  for (std::size_t got = rest.size(); got < asked.bytes;) {
    const std::size_t count = link.read(room, kPiece);
    if (count == 0) throw Fault("the answer was cut off");
    got += count;
  }
}

struct Results {
  std::mutex mutex;
  std::vector<double> times;
  std::string fault;
};

void ask_many(const Asked& asked, Results& results) {
  std::vector<double> times;
  try {
    std::minstd_rand chance(std::random_device{}());
    std::uniform_int_distribution<long> pause(0, 2 * asked.pause_us);
    const auto room = std::make_unique_for_overwrite<char[]>(kPiece);
    std::unique_ptr<Link> link;
    if (asked.kept) {
      link = open(asked);
      ask(*link, asked, room.get());
    }
    for (std::size_t i = 0; i < asked.count; ++i) {
      if (asked.pause_us > 0) ::usleep(static_cast<useconds_t>(pause(chance)));
      const Clock::time_point began = Clock::now();
      if (!asked.kept) link = open(asked);
      ask(*link, asked, room.get());
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
      // Who ends it first keeps the port: that is to be the server.
      if (!asked.kept) link->read(room.get(), kPiece);
    }
  } catch (const Fault& fault) {
    const std::lock_guard lock(results.mutex);
    results.fault = fault.what();
  }
  const std::lock_guard lock(results.mutex);
  results.times.insert(results.times.end(), times.begin(), times.end());
}

int ask_all(const Asked& asked) {
  Results results;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < asked.at_once; ++i)
      threads.emplace_back([&] { ask_many(asked, results); });
  }
  if (!results.fault.empty()) throw Fault(results.fault);
  std::putchar('[');
  for (std::size_t i = 0; i < results.times.size(); ++i)
    std::printf("%s%.1f", i == 0 ? "" : ",", results.times[i]);
  std::puts("]");
  return 0;
}

// Does `act` with each number below `count`, in some threads; how many times it threw, and what.
template <typename Act>
std::size_t for_each(std::size_t count, std::string& fault, Act act) {
  constexpr std::size_t kThreads = 8;
  std::mutex mutex;
  std::size_t next = 0, failed = 0;
  auto work = [&] {
    const auto room = std::make_unique_for_overwrite<char[]>(kPiece);
    for (;;) {
      std::size_t number;
      {
        const std::lock_guard lock(mutex);
        if (next == count) return;
        number = next++;
      }
      try {
        act(number, room.get());
      } catch (const Fault& found) {
        const std::lock_guard lock(mutex);
        ++failed;
        fault = found.what();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(work);
  threads.clear();
  return failed;
}

int hold(Asked asked) {
  asked.kept = true;
  std::vector<std::unique_ptr<Link>> links(asked.count);
  std::string fault;
  std::size_t failed = for_each(links.size(), fault, [&](std::size_t number, char* room) {
    auto link = open(asked);
    ask(*link, asked, room);
    links[number] = std::move(link);
  });
  std::printf("open %zu failed %zu %s\n", links.size() - failed, failed, fault.c_str());
  std::fflush(stdout);
  std::getchar();
  fault.clear();
  failed = for_each(links.size(), fault, [&](std::size_t number, char* room) {
    if (links[number] == nullptr) throw Fault("was not open");
    ask(*links[number], asked, room);
  });
  std::printf("answered %zu failed %zu %s\n", links.size() - failed, failed, fault.c_str());
  std::fflush(stdout);
  ::_exit(0);  // without the end of each
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const std::string_view what = argc > 1 ? argv[1] : "";
  try {
    if (what == "serve" && argc >= 3) return serve(argv[2], argc > 3 ? argv[3] : nullptr);
    if (what == "ask") return ask_all(read_words(argv + 2));
    if (what == "hold") return hold(read_words(argv + 2));
    std::fputs("usage: egress_load serve|ask|hold …; see its source\n", stderr);
  } catch (const Fault& fault) {
    std::fprintf(stderr, "egress_load: %s\n", fault.what());
  }
  return 1;
}
