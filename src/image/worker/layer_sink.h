// Where the entries of layers go that are made, one layer after the other.
#pragma once

#include "image/worker/unpack.h"

namespace caisson::image {

class LayerSink : public EntrySink {
 public:
  // Before the first and after the last entry of each layer.
  virtual Status begin_layer() = 0;
  virtual Status end_layer() = 0;
};

}  // namespace caisson::image
