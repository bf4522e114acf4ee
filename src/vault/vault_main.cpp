// caisson-vault: has the secrets of a server's sandboxes, which the server has not; see keeper.h
// and worker.h. Its socket is descriptor 3; the key is below CAISSON_STATE_DIR.
#include <fcntl.h>

#include <cstdio>

#include "base/companion.h"
#include "vault/keeper.h"

int main(int count, char**) {
  constexpr int kStatusOfOurError = 125;
  if (count != 1 || ::fcntl(caisson::kCompanionFd, F_GETFD) < 0) {
    std::fputs("caisson-vault: started by caisson serve alone\n", stderr);
    return kStatusOfOurError;
  }
  return caisson::vault::run_keeper(caisson::kCompanionFd);
}
