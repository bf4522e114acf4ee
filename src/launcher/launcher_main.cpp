// caisson-launcher: the launcher as a program of its own; see launcher.h. Its socket is
// descriptor 3.

#include "launcher/launcher.h"

#include <unistd.h>

#include <string>
#include <string_view>

#include "guest/entry.h"
#include "wall/namespace/steps.h"

namespace {

constexpr int kControlFd = 3;

}  // namespace

int main(int argc, char** argv) {
#if defined(CAISSON_TEST_SWITCHES)
  if (argc == 2 && std::string_view(argv[1]) == "--list-steps") {
    std::string lines;
    for (std::size_t i = 0; i < caisson::wall::kStepCount; ++i)
      lines += std::string(caisson::wall::kStepNames[i]) + "\n";
    for (std::size_t i = 0; i < caisson::wall::kQuotaStepCount; ++i)
      lines += std::string(caisson::wall::kQuotaStepNames[i]) + " quota\n";
    for (std::size_t i = 0; i < caisson::wall::kLateStepCount; ++i)
      lines += std::string(caisson::wall::kLateStepNames[i]) + " late\n";
    (void)!::write(1, lines.data(), lines.size());
    return 0;
  }
#endif
  (void)argv;
  if (argc != 1) {
    constexpr std::string_view kText =
        "caisson-launcher: started by caisson alone; it takes no arguments\n";
    (void)!::write(2, kText.data(), kText.size());
    return 125;
  }
  return caisson::launcher::run_launcher(kControlFd, caisson::guest::run_guest);
}
