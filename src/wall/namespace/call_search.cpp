#include "wall/namespace/call_search.h"

#include <algorithm>

#include "base/error.h"
#include "base/kernel_abi.h"

namespace caisson::wall {
namespace {

// A jump reaches 255 instructions, and half of those of so many is less.
constexpr std::size_t kMostNumbers = 120;

// Where the answer changes: refused below the first, allowed from it to below the second, and so
// on.
std::vector<std::uint32_t> changes_of(std::vector<std::uint32_t> allowed) {
  std::ranges::sort(allowed);
  std::vector<std::uint32_t> changes;
  for (const std::uint32_t number : allowed) {
    if (!changes.empty() && number < changes.back()) continue;  // repeated
    if (!changes.empty() && number == changes.back())
      changes.pop_back();
    else
      changes.push_back(number);
    changes.push_back(number + 1);
  }
  return changes;
}

// The answers `first` to `last`, answer i being that between changes[i - 1] and changes[i].
std::vector<sock_filter> search(const std::vector<std::uint32_t>& changes, std::size_t first,
                                std::size_t last, std::uint32_t otherwise) {
  if (first == last) {
    const std::uint32_t answer = first % 2 == 1 ? SECCOMP_RET_ALLOW : otherwise;
    return {BPF_STMT(BPF_RET | BPF_K, answer)};
  }
  const std::size_t middle = (first + last + 1) / 2;
  const std::vector<sock_filter> below = search(changes, first, middle - 1, otherwise);
  const std::vector<sock_filter> above = search(changes, middle, last, otherwise);
  VERIFY(below.size() <= UINT8_MAX);
  std::vector<sock_filter> all;
  all.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, changes[middle - 1],
                         static_cast<std::uint8_t>(below.size()), 0));
  all.insert(all.end(), below.begin(), below.end());
  all.insert(all.end(), above.begin(), above.end());
  return all;
}

}  // namespace

std::vector<sock_filter> search_calls(std::vector<std::uint32_t> allowed, std::uint32_t otherwise) {
  VERIFY(allowed.size() <= kMostNumbers);
  const std::vector<std::uint32_t> changes = changes_of(std::move(allowed));
  return search(changes, 0, changes.size(), otherwise);
}

}  // namespace caisson::wall
