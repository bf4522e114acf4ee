// Prints who it runs as: "ids UID EFFECTIVE_UID SECURE". Not an attack: the runner plants copies of
// it with set-id bits, and an attempt looks at what they print.
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void) {
  printf("ids %u %u %lu\n", getuid(), geteuid(), getauxval(AT_SECURE));
  return 0;
}
