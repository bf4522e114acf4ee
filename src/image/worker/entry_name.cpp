#include "image/worker/entry_name.h"

#include "image/reference.h"

namespace caisson::image {

std::string_view EntryName::parent() const {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string_view() : std::string_view(path).substr(0, slash);
}

std::string_view EntryName::last() const {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string_view(path)
                                    : std::string_view(path).substr(slash + 1);
}

Result<EntryName> parse_entry_name(std::string_view name) {
  auto refuse = [&](const std::string& why) {
    return fail(Error::invalid("entry '" + printable(name) + "': " + why));
  };
  if (name.empty()) return refuse("it has no name");
  if (name.size() > kMaxEntryName) {
    return refuse("its name has " + std::to_string(name.size()) + " bytes; at most " +
                  std::to_string(kMaxEntryName) + " are allowed");
  }
  if (name.find('\0') != std::string_view::npos) return refuse("its name has a zero byte");
  EntryName result;
  result.absolute = name.front() == '/';
  std::size_t depth = 0;
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t slash = rest.find('/');
    const std::string_view component = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (component.empty() || component == ".") continue;
    if (component == "..") return refuse("a name must not go up with '..'");
    if (component.size() > kMaxEntryComponent) {
      return refuse("a part of its name has " + std::to_string(component.size()) +
                    " bytes; at most " + std::to_string(kMaxEntryComponent) + " are allowed");
    }
    if (++depth > kMaxEntryDepth) {
      return refuse("it lies more than " + std::to_string(kMaxEntryDepth) + " directories deep");
    }
    if (!result.path.empty()) result.path += '/';
    result.path += component;
  }
  return result;
}

}  // namespace caisson::image
