// A server over src/http alone, for the load test: prints its port and serves until it is killed.
//
//   /hello   a short answer
//   /counts  JSON: bytes of memory that are in use, and the server's counts
//   /stream  64 KiB again and again, until the client has gone
//   /upload  reads the body and says how long it was
//
// With the argument "secure DIRECTORY" it speaks TLS and leaves ca.pem in that directory.
#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "http/server.h"
#include "io/dev_ca.h"
#include "io/tls.h"

namespace caisson {
namespace {

// Anonymous memory, in bytes: buffers and coroutines, not the program itself.
std::uint64_t memory_in_use() {
  std::FILE* const status = std::fopen("/proc/self/status", "re");
  VERIFY(status != nullptr);
  char line[256];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof(line), status) != nullptr) {
    if (std::sscanf(line, "RssAnon: %llu kB", &kib) == 1) break;
  }
  std::fclose(status);
  return kib * 1024;
}

class Tool {
 public:
  io::Async<void> handle(http::Exchange& exchange) {
    const std::string& path = exchange.target().path;
    if (path == "/stream") {
      co_await exchange.begin({});
      const std::string piece(64 * 1024, 'x');
      Status written;
      while (written.has_value()) written = co_await exchange.write(piece);
    } else if (path == "/upload") {
      std::uint64_t total = 0;
      for (;;) {
        const auto piece = co_await exchange.read_some(64 * 1024);
        if (!piece.has_value() || piece->empty()) break;
        total += piece->size();
      }
      co_await exchange.respond({}, std::to_string(total));
    } else if (path == "/counts") {
      ::malloc_trim(0);
      const http::Server::Counts counts = server->counts();
      json::Value answer = json::Value::object();
      answer.set("memory", memory_in_use());
      answer.set("connections", counts.connections);
      answer.set("connections_total", counts.connections_total);
      answer.set("requests_total", counts.requests_total);
      answer.set("refused_total", counts.refused_total);
      co_await exchange.respond({}, json::serialize(answer));
    } else {
      co_await exchange.respond({}, "hello");
    }
  }

  http::Server* server = nullptr;
};

Result<int> run(int argc, char** argv) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("getrlimit");
  files.rlim_cur = files.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return fail_errno("setrlimit");

  io::Loop loop(1);
  Tool tool;
  http::Limits limits;
  limits.head_time = std::chrono::seconds(2);
  limits.write_time = std::chrono::seconds(2);
  http::Server server(loop, limits,
                      [&](http::Exchange& exchange) { return tool.handle(exchange); });
  tool.server = &server;
  TRY_ASSIGN(std::unique_ptr<io::Listener> listener, io::listen_tcp(loop, "127.0.0.1:0"));
  auto transport = http::Server::Transport::kPlain;
  if (argc == 3 && std::strcmp(argv[1], "secure") == 0) {
    TRY_ASSIGN(const io::DevCa ca, io::make_dev_ca(argv[2], "example.com"));
    TRY_ASSIGN(auto identity, io::TlsIdentity::load(ca.certificate, ca.key));
    listener = io::wrap_tls_server(loop, std::move(listener), std::move(identity));
    transport = http::Server::Transport::kTls;
  }
  std::printf("%u\n", listener->port());
  std::fflush(stdout);
  server.serve(std::move(listener), transport);
  loop.run();
  return 0;
}

}  // namespace
}  // namespace caisson

int main(int argc, char** argv) {
  const auto result = caisson::run(argc, argv);
  if (result.has_value()) return *result;
  std::fprintf(stderr, "http_tool: %s\n", result.error().message().c_str());
  return 1;
}
