// What the worker tells about its work, as text and back: decimal lines. Decoding trusts nothing,
// for who sends it has read hostile bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/rootfs_worker.h"
#include "image/worker_process.h"

namespace caisson::image {

struct LayerCounts {
  UnpackReport counts;
  std::uint64_t whiteouts = 0;
  std::string diff_id;  // SHA-256 of the uncompressed bytes, to their very end

  std::string encode() const;
  static Result<LayerCounts> decode(std::string_view text);
};

std::string encode_report(const UnpackReport& report);
Result<UnpackReport> decode_report(std::string_view text);

std::string encode_rootfs_report(const RootfsReport& report);
Result<RootfsReport> decode_rootfs_report(std::string_view text);

}  // namespace caisson::image
