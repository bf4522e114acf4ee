// The server's configuration: whatever the text, an error says what is wrong; what is read is
// printed as what is read as the same.
// libraries: policy
#include "base/error.h"
#include "policy/server_config.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace caisson;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
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
