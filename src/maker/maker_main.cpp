// caisson-maker: makes sandboxes for caisson-serve, which has no rights; see maker.h.
//
//   caisson-maker                    its socket is descriptor 3
//   caisson-maker --group PATH       the same, in that control group (group.h)
//   caisson-maker --hold             holds its control group for makers, and nothing else
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "base/companion.h"
#include "maker/group.h"
#include "maker/maker.h"

namespace {

constexpr int kStatusOfOurError = 125;

int said(const caisson::Status& status) {
  if (status.has_value()) return 0;
  std::fprintf(stderr, "caisson-maker: %s\n", status.error().message().c_str());
  return kStatusOfOurError;
}

}  // namespace

int main(int argc, char** argv) {
  using caisson::maker::run_maker;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (argc == 1) return run_maker(caisson::kCompanionFd);
  if (argc == 2 && mode == "--hold") return said(caisson::maker::hold_group());
  if (argc == 3 && mode == "--group") {
    const int status = said(caisson::maker::enter_group(argv[2]));
    return status != 0 ? status : run_maker(caisson::kCompanionFd);
  }
  std::fputs("caisson-maker: started by caisson serve alone\n", stderr);
  return kStatusOfOurError;
}
