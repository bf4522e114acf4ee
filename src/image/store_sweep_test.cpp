// What the store removes, what it keeps, and what several processes do to each other there.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "image/import.h"
#include "image/store_for_test.h"

namespace caisson::image::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Sweep : public StoreTest {
 protected:
  void age(const std::string& path) {
    const timespec old[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (directory_ / ("images/" + path)).c_str(), old, 0), 0);
  }
};

TEST_F(Sweep, NothingIsRemovedWhileAnybodyAdds) {
  std::optional<Store> adding = open();
  const ImageInfo info = adding->add_image(content({layer(*adding, "file")})).value();
  {
    Store other = open();
    ASSERT_TRUE(other.sweep().has_value());
    auto collected = other.gc(GcScope::kAll, GcMode::kRemove);
    ASSERT_FALSE(collected.has_value());
    EXPECT_EQ(collected.error().code(), Code::kUnavailable);
    EXPECT_THAT(collected.error().message(), HasSubstr("adding images"));
  }
  EXPECT_TRUE(adding->resolve(info.record.id).has_value());
  adding.reset();  // dies without having named it
  EXPECT_TRUE(marked());
  open();
  expect_nothing_left();
}

TEST_F(Sweep, AStoreThatAddsCanSweepItself) {
  Store store = open();
  ASSERT_TRUE(store.add_image(content({layer(store, "file")})).has_value());
  EXPECT_TRUE(marked());
  ASSERT_TRUE(store.sweep().has_value());
  expect_nothing_left();
  ASSERT_TRUE(store.add_image(content({layer(store, "file")})).has_value());
  EXPECT_TRUE(marked());
}

TEST_F(Sweep, WhatANameLeftBehindGoes) {
  const std::string first = add("base", "one"), second = add("base", "two");
  EXPECT_NE(first, second);
  EXPECT_THAT(names("ids"), ElementsAre(second));
  EXPECT_EQ(names("rootfs").size(), 1u);
  EXPECT_EQ(names("blobs").size(), 2u);  // config and layer
  EXPECT_FALSE(marked());
}

TEST_F(Sweep, FilesInUseStayUntilTheyAreFree) {
  add("base");
  Store store = open();
  ImageRef image = store.resolve("base").value();
  EXPECT_TRUE(store.in_use(image.record.chain));
  ASSERT_TRUE(store.remove("base").has_value());
  EXPECT_EQ(faccessat(image.root.fd.get(), "file", F_OK, 0), 0);
  EXPECT_THAT(names("rootfs"), ElementsAre(image.record.chain));
  EXPECT_THAT(names("ids"), IsEmpty());
  EXPECT_THAT(names("blobs"), IsEmpty());
  // Until then opening the store does not look at everything.
  EXPECT_EQ(read_text(directory_ / "images/work"), "rootfs/" + image.record.chain + "\n");
  open();
  EXPECT_EQ(read_text(directory_ / "images/work"), "rootfs/" + image.record.chain + "\n");
  EXPECT_EQ(store.gc(GcScope::kAll, GcMode::kRemove).value().in_use, 1u);
  EXPECT_EQ(store.gc(GcScope::kAll, GcMode::kDryRun).value().in_use, 1u);
  image.in_use.reset();
  open();
  expect_nothing_left();
}

TEST_F(Sweep, FilesInUseAreUsedAgainByTheSameImage) {
  const std::string id = add("base");
  Store store = open();
  ImageRef image = store.resolve("base").value();
  ASSERT_TRUE(store.remove("base").has_value());
  EXPECT_FALSE(store.add_image(content({layer(store, "file")})).value().flattened);
  ASSERT_TRUE(store.set_reference(parse_reference("again").value(), id).has_value());
  image.in_use.reset();
  ASSERT_TRUE(store.sweep().has_value());
  EXPECT_TRUE(store.resolve("again").has_value());
}

TEST_F(Sweep, OpeningACleanStoreChangesNothing) {
  add("base");
  const auto before = std::filesystem::last_write_time(directory_ / "images");
  open().resolve("base").value();
  EXPECT_EQ(std::filesystem::last_write_time(directory_ / "images"), before);
  EXPECT_THAT(names("tmp"), IsEmpty());
}

TEST_F(Sweep, GcCountsWhatItFrees) {
  const std::string kept = add("kept", "one");
  Store store = open();
  const ImageInfo cached =
      store.add_image(content({layer(store, "two", std::string(50'000, 'x'))})).value();
  const std::string key = sha256_of("step");
  ASSERT_TRUE(store.cache_put(key, cached.record.id).has_value());
  const std::string part = sha256_of("partial"), whole = sha256_of("whole");
  ASSERT_EQ(write(store.begin_blob(part)->file.get(), "abc", 3), 3);
  PartialBlob blob = store.begin_blob(whole).value();
  ASSERT_EQ(write(blob.file.get(), "whole", 5), 5);
  ASSERT_TRUE(store.commit_blob(std::move(blob)).has_value());

  // All of it is newer than a week.
  const SweepReport nothing = store.gc(GcScope::kStale, GcMode::kRemove).value();
  EXPECT_EQ(nothing.bytes + nothing.images + nothing.rootfs + nothing.blobs +
                nothing.cache_entries + nothing.partial,
            0u);
  EXPECT_EQ(store.cache_get(key).value(), cached.record.id);

  auto expect_all = [&](const SweepReport& report) {
    EXPECT_EQ(report.images, 1u);
    EXPECT_EQ(report.rootfs, 1u);
    EXPECT_EQ(report.blobs, 3u);  // the image's layer and config, and the one that waited
    EXPECT_EQ(report.cache_entries, 1u);
    EXPECT_EQ(report.partial, 1u);
    EXPECT_EQ(report.in_use, 0u);
    EXPECT_GE(report.bytes, 2 * 50'000u);
    EXPECT_LE(report.bytes, 2 * 50'000u + 20 * 4096u);
  };
  const SweepReport dry = store.gc(GcScope::kAll, GcMode::kDryRun).value();
  expect_all(dry);
  EXPECT_EQ(names("ids").size(), 2u);
  EXPECT_EQ(names("cache").size(), 1u);
  EXPECT_EQ(names("partial").size(), 2u);
  const SweepReport removed = store.gc(GcScope::kAll, GcMode::kRemove).value();
  expect_all(removed);
  EXPECT_EQ(removed.bytes, dry.bytes);
  EXPECT_THAT(names("ids"), ElementsAre(kept));
  EXPECT_EQ(names("blobs").size(), 2u);
  for (const char* folder : {"cache", "partial", "tmp"}) EXPECT_THAT(names(folder), IsEmpty());
  EXPECT_FALSE(marked());
  EXPECT_TRUE(store.resolve("kept").has_value());
}

TEST_F(Sweep, GcDropsWhatWasNotUsedForAWeek) {
  Store store = open();
  const ImageInfo cached = store.add_image(content({layer(store, "file")})).value();
  const std::string old = sha256_of("old"), used = sha256_of("used"), part = sha256_of("part");
  ASSERT_TRUE(store.cache_put(old, cached.record.id).has_value());
  ASSERT_TRUE(store.cache_put(used, cached.record.id).has_value());
  ASSERT_EQ(write(store.begin_blob(part)->file.get(), "abc", 3), 3);
  for (const std::string& file : {"cache/" + old, "cache/" + used, "partial/" + part}) age(file);
  EXPECT_TRUE(store.cache_get(used).value().has_value());  // a use
  const SweepReport report = store.gc(GcScope::kStale, GcMode::kRemove).value();
  EXPECT_EQ(report.cache_entries, 1u);
  EXPECT_EQ(report.partial, 1u);
  EXPECT_EQ(report.images, 0u);
  EXPECT_THAT(names("cache"), ElementsAre(used));
  EXPECT_THAT(names("partial"), IsEmpty());
}

TEST_F(Sweep, ADryRunLeavesNoMark) {
  add("base");
  Store store = open();
  ASSERT_TRUE(store.gc(GcScope::kAll, GcMode::kDryRun).has_value());
  EXPECT_FALSE(marked());
}

TEST_F(Sweep, RubbishInItsFoldersGoes) {
  add("base");
  replace("refs/.new.1.1", "half");
  replace("ids/.new.1.1", "half");
  replace("cache/.new.1.1", "half");
  replace("tmp/work.x", "");
  replace("tmp/new.x", "bytes");
  std::filesystem::create_directories(directory_ / "images/tmp/dead/rootfs/etc");
  std::filesystem::create_directories(directory_ / "images/rootfs/half");
  replace("work", "");
  open();
  for (const char* folder : {"tmp", "cache"}) EXPECT_THAT(names(folder), IsEmpty()) << folder;
  for (const char* folder : {"refs", "ids", "rootfs"})
    EXPECT_EQ(names(folder).size(), 1u) << folder;
  EXPECT_FALSE(marked());
  EXPECT_TRUE(open().resolve("base").has_value());
}

TEST_F(Sweep, WorkOfALivingWorkerStays) {
  Store store = open();
  std::optional<Workspace> workspace = store.make_workspace().value();
  const std::string name = workspace->name();
  Fd inherited(fcntl(workspace->lock_fd(), F_DUPFD_CLOEXEC, 3));
  workspace.reset();
  ASSERT_TRUE(store.sweep().has_value());
  EXPECT_THAT(names("tmp"), ElementsAre(name));
  EXPECT_TRUE(marked());
  inherited.reset();
  open();
  expect_nothing_left();
}

TEST_F(Sweep, TwoProcessesFlattenAChainOnce) {
  Store store = open();
  Tar tar;
  for (int i = 0; i < 5'000; ++i) {
    tar.add({.name = "d" + std::to_string(i % 50) + "/f" + std::to_string(i), .data = "x"});
  }
  const LayerRef big = layer_of(store, tar.bytes());
  Signal flattened;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(in_child([&] {
      Store own = open();
      auto info = own.add_image(content({big}, std::to_string(i)));
      if (!info.has_value()) return false;
      if (info->flattened) flattened.give();
      const auto name = parse_reference("image" + std::to_string(i));
      return own.set_reference(*name, info->record.id).has_value() && own.sweep().has_value();
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_TRUE(flattened.await());
  EXPECT_FALSE(flattened.await());  // no other did
  ASSERT_TRUE(store.sweep().has_value());
  EXPECT_EQ(names("rootfs").size(), 1u);
  EXPECT_EQ(names("refs").size(), 4u);
  EXPECT_THAT(names("tmp"), IsEmpty());
}

TEST_F(Sweep, ManyProcessesAtOnceLeaveTheStoreWhole) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(in_child([&] {
      for (int round = 0; round < 5; ++round) {
        const std::string name = "image" + std::to_string((i + round) % 3);
        {
          Store own = open();
          auto info = own.add_image(content({layer(own, "file" + std::to_string(i % 2))}));
          if (!info.has_value()) return false;
          if (!own.set_reference(parse_reference(name).value(), info->record.id).has_value())
            return false;
        }
        auto image = open().resolve(name);
        if (image.has_value() && faccessat(image->root.fd.get(), ".", F_OK, 0) != 0) return false;
        if (!image.has_value() && image.error().code() != Code::kNotFound) return false;
        auto removed = open().remove(name);
        if (!removed.has_value() && removed.error().code() != Code::kNotFound) return false;
      }
      return true;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  for (int i = 0; i < 3; ++i) (void)open().remove("image" + std::to_string(i));
  ASSERT_TRUE(open().sweep().has_value());
  expect_nothing_left();
}

// A root file system of 300 files and 300 kB.
std::string archive_of_some_size() {
  Tar tar;
  for (int i = 0; i < 300; ++i) {
    tar.add({.name = "f" + std::to_string(i), .data = std::string(1000, 'x')});
  }
  return tar.bytes();
}

TEST_F(Sweep, AFileThatMayNotGrowIsAnErrorAndLeavesNothing) {
  Fd archive = memory_file(archive_of_some_size());
  const pid_t child = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100'000, .rlim_max = 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    Store store = open();
    auto report = import_archive(store, "base", archive.get());
    return !report.has_value() &&
           report.error().message().find("File too large") != std::string::npos;
  });
  EXPECT_EQ(wait_for(child), 0);
  expect_nothing_left();
}

// As root: on file systems of our own that are full sooner or later, in a mount namespace that ends
// with the child.
TEST_F(Sweep, AFullDiskIsAnErrorAndLeavesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a mount";
  const std::string bytes = archive_of_some_size();
  const std::string archive = directory_ / "archive.tar";
  std::ofstream(archive) << bytes;
  const std::string place = directory_ / "small";
  std::filesystem::create_directory(place);
  int full = 0, fits = 0;
  for (int kilobytes = 4; kilobytes < 3000; kilobytes += kilobytes < 100 ? 32 : 200) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string size = "size=" + std::to_string(kilobytes) + "k";
      if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("tmpfs", place.c_str(), "tmpfs", 0, size.c_str()) != 0) {
        _exit(10);
      }
      auto store = Store::open_at(place + "/images");
      if (!store.has_value()) _exit(11);
      Fd file(::open(archive.c_str(), O_RDONLY | O_CLOEXEC));
      auto report = import_archive(*store, "base", file.get());
      auto left = [&] {
        std::size_t count = 0;
        for (const char* folder : {"tmp", "refs", "ids", "rootfs", "blobs", "partial"}) {
          count += entries_of(place + "/images/" + folder).size();
        }
        return count;
      };
      if (report.has_value()) {
        // And from a disk that is full to the last block it can be removed.
        Fd filler(::open((place + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        const std::string block(4096, 'x');
        while (write(filler.get(), block.data(), block.size()) > 0) {
        }
        if (!store->remove("base").has_value()) _exit(12);
        _exit(left() == 0 ? 0 : 13);
      }
      if (report.error().message().find("No space left") == std::string::npos) {
        std::fprintf(stderr, "%d kB: %s\n", kilobytes, report.error().message().c_str());
        _exit(14);
      }
      _exit(left() == 0 ? 1 : 15);
    }
    const int status = wait_for(child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        << kilobytes << " kB: " << WEXITSTATUS(status);
    ++(WEXITSTATUS(status) == 0 ? fits : full);
  }
  EXPECT_GE(full, 5);
  EXPECT_GE(fits, 1);
}

}  // namespace
}  // namespace caisson::image::testing
