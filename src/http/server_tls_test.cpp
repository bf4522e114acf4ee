#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "http/server.h"
#include "io/dev_ca.h"
#include "io/loop_for_test.h"
#include "io/tls.h"

namespace caisson::http {
namespace {

using io::Async;
using ::testing::HasSubstr;

std::string output_of(const std::string& command) {
  std::string all;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  VERIFY(pipe != nullptr);
  std::array<char, 4096> piece;
  while (const std::size_t count = ::fread(piece.data(), 1, piece.size(), pipe))
    all.append(piece.data(), count);
  ::pclose(pipe);
  return all;
}

Async<void> describe(Exchange& exchange) {
  const auto body = co_await exchange.read_all(10'000'000);
  EXPECT_TRUE(body.has_value());
  co_await exchange.begin({});
  co_await exchange.write(exchange.secure() ? "secure " : "plain ");
  co_await exchange.write(exchange.target().path + " ");
  co_await exchange.write(std::to_string(body.value_or("").size()) + "\n");
  co_await exchange.end();
}

TEST(ServerOverTls, CurlSpeaksWithItPlainAndSecure) {
  char directory[] = "/tmp/caisson-http-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string root = directory;
  const auto ca = io::make_dev_ca(root, "example.com");
  ASSERT_TRUE(ca.has_value());
  const auto identity = io::TlsIdentity::load(ca->certificate, ca->key);
  ASSERT_TRUE(identity.has_value());

  io::Loop loop(1);
  Server server(loop, {}, describe);
  auto plain = std::move(*io::listen_tcp(loop, "127.0.0.1:0"));
  auto secure =
      io::wrap_tls_server(loop, std::move(*io::listen_tcp(loop, "127.0.0.1:0")), *identity);
  const std::string plain_port = std::to_string(plain->port());
  const std::string secure_port = std::to_string(secure->port());
  server.serve(std::move(plain));
  server.serve(std::move(secure), Server::Transport::kTls);

  const std::string name = "49983-abc.example.com";
  // Two requests on one secure connection, the second with a body that is sent in chunks.
  const std::string options =
      " -sS --noproxy '*' --connect-to ::127.0.0.1: --cacert " + ca->ca_certificate + " ";
  const std::string command = "curl" + options + "http://" + name + ":" + plain_port + "/a --next" +
                              options + "https://" + name + ":" + secure_port + "/b --next" +
                              options + "-T - -w '%{num_connects}' https://" + name + ":" +
                              secure_port + "/c";
  auto body = [&]() -> Async<void> {
    auto run = [&] { return output_of("head -c 3000000 /dev/zero | " + command); };
    const std::string said = co_await loop.in_pool(std::move(run));
    EXPECT_THAT(said, HasSubstr("plain /a 0\n"));
    EXPECT_THAT(said, HasSubstr("secure /b 0\n"));
    EXPECT_THAT(said, HasSubstr("secure /c 3000000\n0"));  // and no new connection
  };
  io::run_on(loop, body);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace caisson::http
