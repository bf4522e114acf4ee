#include "image/pack.h"

namespace caisson::image {

Result<PackedFile> pack_layer_to(int, const KeptLayer&, const PackLimits&, const Progress&) {
  return fail(Error(Code::kUnimplemented, "layers cannot be packed yet"));
}

}  // namespace caisson::image
