// libraries: policy
// parser: src/policy/server_config.cpp src/policy/yaml.cpp src/policy/read_node.cpp
//
// The server's configuration: whatever the text, an error says what is wrong; what is read is
// printed as what is read as the same. A short text is tried as the value of each setting as well.
#include "base/error.h"
#include "policy/server_config.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file

void check_value(std::string_view text) {
  for (const policy::ServerSetting& setting : policy::server_settings()) {
    policy::ServerConfig config;
    const std::string called = policy::server_variable(setting);
    VERIFY(called.starts_with("CAISSON_SERVE_"));
    const auto set = policy::set_server_value(config, setting.key, text, called);
    if (!set.has_value()) {
      VERIFY(set.error().message().contains(called));
      VERIFY(set.error().message().contains("; allowed "));
      continue;
    }
    // Printed it is in the file what it was there.
    const auto again = policy::parse_server_config(policy::print_server_config(config));
    VERIFY(again.has_value() && *again == config);
  }
  policy::ServerConfig config;
  VERIFY(!policy::set_server_value(config, "pool", text, "x").has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size <= 64) check_value(text);
  const auto config = policy::parse_server_config(text);
  if (!config.has_value()) {
    VERIFY(config.error().code() == Code::kInvalidArgument);
    VERIFY(config.error().message().contains("found "));
    VERIFY(config.error().message().contains("; allowed "));
    VERIFY(config.error().message().size() < 4000);
    return 0;
  }
  if (const auto valid = policy::validate_server_config(*config); !valid.has_value()) {
    VERIFY(valid.error().message().contains(": found "));
  }
  const std::string printed = policy::print_server_config(*config);
  // Texts of odd characters grow when they are written: beyond what a file may be.
  if (printed.size() > (1 << 20)) return 0;
  const auto again = policy::parse_server_config(printed);
  VERIFY(again.has_value());
  VERIFY(*again == *config);
  return 0;
}
