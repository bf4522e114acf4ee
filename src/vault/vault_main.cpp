// caisson-vault: has the secrets of a server's sandboxes, which the server has not; see keeper.h
// and worker.h. Its socket is descriptor 3; the key is below CAISSON_STATE_DIR.
#include <fcntl.h>

#include <cstdio>

#include "vault/keeper.h"

int main(int count, char**) {
  constexpr int kControlFd = 3, kStatusOfOurError = 125;
  if (count != 1 || ::fcntl(kControlFd, F_GETFD) < 0) {
    std::fputs("caisson-vault: started by caisson serve alone\n", stderr);
    return kStatusOfOurError;
  }
  return caisson::vault::run_keeper(kControlFd);
}
