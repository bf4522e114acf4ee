// caisson-maker: makes sandboxes for caisson-serve, which has no rights; see maker.h.
//
//   caisson-maker [--group PATH]     its socket is descriptor 3
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "maker/maker.h"

namespace {

constexpr int kControlFd = 3;
constexpr int kStatusOfOurError = 125;

}  // namespace

int main(int argc, char** argv) {
  const bool grouped = argc == 3 && std::string_view(argv[1]) == "--group";
  if (argc != 1 && !grouped) {
    std::fputs("caisson-maker: started by caisson serve alone\n", stderr);
    return kStatusOfOurError;
  }
  if (grouped) {
    if (const auto entered = caisson::maker::enter_group(argv[2]); !entered.has_value()) {
      std::fprintf(stderr, "caisson-maker: %s\n", entered.error().message().c_str());
      return kStatusOfOurError;
    }
  }
  return caisson::maker::run_maker(kControlFd);
}
