// Random layers over random roots: a delta, looked at through an overlay, must show what flattening
// both shows. The overlay is a model here; the kernel's is in tests/integration/test_stack.py.
#include <gmock/gmock.h>

#include <map>
#include <random>

#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using testing::Found;
using testing::Listing;
using testing::Tar;
using testing::TarEntry;

// What an overlay shows of two roots.
Listing merged(const Listing& lower, const Listing& upper) {
  Listing shown;
  const auto hides = [&](const std::string& name) {
    const auto self = upper.find(name);
    // A directory of both is the upper one's; anything else of the upper one hides the lower.
    if (self != upper.end()) return true;
    for (std::size_t slash = name.rfind('/'); slash != std::string::npos;
         slash = slash == 0 ? std::string::npos : name.rfind('/', slash - 1)) {
      const auto above = upper.find(name.substr(0, slash));
      if (above == upper.end()) continue;
      if (!S_ISDIR(above->second.mode) || above->second.opaque) return true;
    }
    return false;
  };
  for (const auto& [name, found] : lower) {
    if (!hides(name)) shown[name] = found;
  }
  for (const auto& [name, found] : upper) {
    if (S_ISCHR(found.mode)) continue;
    shown[name] = found;
    shown[name].first_name = "upper " + found.first_name;
    shown[name].opaque = false;
  }
  return shown;
}

// Without what an overlay cannot keep (counts of links) or the root alone has.
Listing comparable(Listing listing) {
  std::map<std::string, std::string> first;
  listing.erase("");
  for (const auto& [name, found] : listing) first.try_emplace(found.first_name, name);
  for (auto& [name, found] : listing) {
    found.first_name = first[found.first_name];
    found.links = 0;
    if (geteuid() != 0) found.uid = 0;
  }
  return listing;
}

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  // Any, with each directory before what is in it and links to files of its own.
  Tar layer(unsigned entries) {
    Tar tar;
    made_.clear();
    for (unsigned i = 0; i < entries; ++i) add(tar);
    return tar;
  }

 private:
  void add(Tar& tar) {
    const std::string name = path();
    for (std::size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      const std::string above = name.substr(0, slash);
      const auto there = made_.find(above);
      if (there != made_.end() && there->second != '5') return;
      if (there == made_.end()) tar.add(directory(above));
    }
    const std::size_t last = name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1;
    TarEntry entry{.name = name,
                   .mode = pick({0644u, 0755u, 0600u, 04755u}),
                   .uid = below(3) * 1000,
                   .mtime = 1'600'000'000 + below(1000)};
    switch (below(10)) {
      case 0:
      case 1:
        tar.add(directory(name));
        return;
      case 2:
        entry.type = '2';
        entry.link = pick<const char*>({"a", "b/c", "..", "/d"});
        break;
      case 3:
        entry.type = '6';
        break;
      case 4: {
        entry.type = '1';
        entry.link = path();
        const auto target = made_.find(entry.link);
        if (target == made_.end() || target->second == '5' || entry.link == name) return;
        if (entry.link.starts_with(name + "/")) return;
        break;
      }
      case 5:
      case 6:
        entry.name.insert(last, ".wh.");
        tar.add({.name = entry.name});
        return;
      case 7:
        if (made_.find(name) == made_.end() || made_[name] != '5') tar.add(directory(name));
        tar.add({.name = name + "/.wh..wh..opq"});
        return;
      default:
        entry.data = std::string(pick({0u, 3u, 900u, 5000u}), static_cast<char>('a' + below(26)));
    }
    forget_below(name);
    made_[name] = entry.type;
    tar.add(entry);
  }
  TarEntry directory(const std::string& name) {
    made_[name] = '5';
    return {.name = name,
            .type = '5',
            .mode = pick({0755u, 0700u, 01777u}),
            .uid = below(3) * 1000,
            .mtime = 1'600'000'000 + below(1000)};
  }
  void forget_below(const std::string& name) {
    std::erase_if(made_, [&](const auto& made) { return made.first.starts_with(name + "/"); });
  }
  std::string path() {
    std::string text = pick<const char*>({"a", "b", "c", "d"});
    while (below(5) < 2) text += pick<const char*>({"/a", "/b", "/c", "/d"});
    return text;
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
  template <typename T>
  T pick(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<unsigned>(all.size()))];
  }

  std::mt19937 random_;
  std::map<std::string, char> made_;  // of the layer under way, by name
};

using DeltaProperty = testing::FlattenTest;

INSTANTIATE_TEST_SUITE_P(Forms, DeltaProperty, testing::kBothForms, testing::name_of_form);

TEST_P(DeltaProperty, AnOverlayOfDeltasShowsWhatFlatteningGives) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Generator generator(seed);
    std::vector<Tar> layers;
    Listing shown;
    for (unsigned count = 1; count <= 4; ++count) {
      layers.push_back(generator.layer(14));
      kind_ = RootfsKind::kWhole;
      unpack_layers(layers);
      ASSERT_FALSE(HasFatalFailure());
      const Listing whole = found_;
      if (count == 1) {
        shown = whole;
        continue;
      }
      kind_ = RootfsKind::kDelta;
      unpack_layers({layers.back()});
      ASSERT_FALSE(HasFatalFailure());
      shown = merged(shown, found_);
      ASSERT_EQ(describe(comparable(shown)), describe(comparable(whole)));
      // With the names of its inodes as one root would have them.
      shown = comparable(std::move(shown));
    }
  }
}

}  // namespace
}  // namespace caisson::image
