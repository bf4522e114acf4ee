// What names, or entries of the build cache, reach in a store: for the files of Store alone.
#pragma once

#include <set>
#include <string>

#include "image/store.h"

namespace caisson::image {

struct Store::Reachable {
  std::set<std::string> images, chains, blobs;
  std::set<std::string> first_format;  // names in by-digest
};

}  // namespace caisson::image
