// Importing a root file system's archive into the store: what `caisson image import NAME FILE`
// calls.
//
//   TRY_ASSIGN(Store store, Store::open());
//   TRY_ASSIGN(ImportReport report, import_archive(store, "base", file_fd, {}, progress));
//   print(report.text());
//
// The archive is a tar, plain or compressed with gzip, zstd or xz, from a file or a pipe. It
// becomes an image of one layer, kept byte for byte, with a config of our own that says nothing but
// what it is made of; the same bytes always give the same image. Archive bytes are read by
// caisson-image-worker alone.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "image/store.h"
#include "image/worker_process.h"

namespace caisson::image {

struct ImportReport {
  Reference reference;
  ImageInfo info;
  UnpackReport unpacked;         // zeros where the work had been done already
  bool already_present = false;  // the same bytes were in the store: only the name is new

  // For people: what was imported and, a line each, what was left out or is weaker than it could
  // be.
  std::string text() const;
};

// After an error the store is as it was. Error: invalid with the entry's name for a bad archive or
// one over a limit; precondition for what this host lacks. Ends the store's hold on what was added
// before (Store::sweep).
Result<ImportReport> import_archive(Store& store, std::string_view name, int archive_fd,
                                    const UnpackLimits& limits = {}, const Progress& progress = {});

}  // namespace caisson::image
