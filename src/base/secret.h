// What nobody may guess: random bytes and names from the kernel, the comparison of secrets, and
// memory for them that is wiped before anybody else gets it. No state, any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace caisson {

// From getrandom(2); a kernel that has none ends the program.
std::string random_bytes(std::size_t count);
// Lower-case hexadecimal digits, four random bits each.
std::string random_hex(std::size_t digits);
// Characters of [a-z0-9], all equally likely: ids that clients see. 20 of them hold 103 bits.
std::string random_id(std::size_t length);
// A version 4 UUID (RFC 9562) in its usual form.
std::string random_uuid();

// Whether both are the same, in a time that depends on their lengths alone.
bool same_secret(std::string_view a, std::string_view b);

// Zeros, also where a compiler sees that nobody reads them any more.
void wipe(void* memory, std::size_t size);
// The bytes and what else its memory holds; the text is empty then.
void wipe(std::string& text);

// For containers of secrets: memory is wiped when it is given back, so also when one grows.
template <typename T>
struct WipingAllocator {
  using value_type = T;
  WipingAllocator() = default;
  template <typename Other>
  WipingAllocator(const WipingAllocator<Other>&) {}

  T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* memory, std::size_t count) {
    wipe(memory, count * sizeof(T));
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const WipingAllocator&) const = default;
};

// Not std::string, which keeps short texts in itself, where no allocator wipes them.
using SecretBytes = std::vector<char, WipingAllocator<char>>;

// A secret's bytes, wiped with the object. Moved, never copied or printed: who needs them says
// bytes().
class SecretValue {
 public:
  SecretValue() = default;
  // A copy; the original is its owner's to wipe.
  explicit SecretValue(std::string_view bytes) : bytes_(bytes.begin(), bytes.end()) {}
  // Takes the bytes and wipes where they were.
  static SecretValue take(std::string& bytes);
  SecretValue(SecretValue&&) noexcept = default;
  SecretValue& operator=(SecretValue&& other) noexcept;
  SecretValue(const SecretValue&) = delete;
  SecretValue& operator=(const SecretValue&) = delete;
  ~SecretValue() = default;

  std::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }

 private:
  SecretBytes bytes_;
};

}  // namespace caisson
