// Imports through the real worker into a store of the test's own.
#include "image/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/paths.h"
#include "image/store_for_test.h"
#include "image/transfer/saved_image.h"
#include "image/worker_report.h"

namespace caisson::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::memory_file;
using testing::read_text;
using testing::Tar;

class Import : public testing::StoreTest {
 protected:
  Result<ImportReport> import(const std::string& name, const std::string& bytes,
                              const UnpackLimits& limits = {}) {
    Store store = open();
    Fd archive = memory_file(bytes);
    return import_archive(store, name, archive.get(), limits);
  }
  // How many entries the root directory of the import under way has; -1 when there is none.
  int entries_under_way() {
    std::error_code gone;
    for (const auto& work : std::filesystem::directory_iterator(directory_ / "images/tmp", gone)) {
      const auto root = work.path() / "rootfs";
      if (!std::filesystem::exists(root, gone)) continue;
      int count = 0;
      for (std::filesystem::directory_iterator at(root, gone), end; !gone && at != end;
           at.increment(gone)) {
        ++count;
      }
      return count;
    }
    return -1;
  }
};

std::string small_archive(const std::string& text = "hello\n") {
  return Tar()
      .add({.name = "./", .type = '5', .mode = 0755})
      .add({.name = "etc/passwd", .data = text})
      .add({.name = "home/user/", .type = '5', .mode = 0755, .uid = 1000, .gid = 1000})
      .add({.name = "bin/su", .data = "#!", .mode = 04755})
      .add({.name = "bin/write", .data = "#!", .mode = 02755, .gid = 5})
      .bytes();
}

// Many files, so that an import takes a while.
std::string slow_archive() {
  Tar tar;
  for (int i = 0; i < 20'000; ++i) {
    tar.add({.name = "d" + std::to_string(i % 100) + "/f" + std::to_string(i),
             .data = std::string(100, 'x')});
  }
  return tar.bytes();
}

TEST_F(Import, MakesAnImageThatResolves) {
  const std::string bytes = small_archive();
  auto report = import("base", bytes);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->unpacked.entries, 5u);
  EXPECT_FALSE(report->already_present);
  Store store = open();
  auto image = store.resolve("base:latest");
  ASSERT_TRUE(image.has_value()) << image.error().message();
  Sha256 hash;
  hash.update(bytes);
  const std::string digest = hash.finish();
  ASSERT_EQ(image->record.layers.size(), 1u);
  EXPECT_EQ(image->record.layers[0].blob.digest, digest);
  EXPECT_EQ(image->record.layers[0].diff_id, digest);  // nothing was packed
  EXPECT_EQ(image->record.layers[0].blob.media_type, media::kOciLayer);
  EXPECT_EQ(image->record.chain, digest);
  EXPECT_EQ(image->config.diff_ids, std::vector<std::string>{digest});
  EXPECT_EQ(image->config.architecture, host_architecture());
  EXPECT_EQ(image->name, "base:latest");
  EXPECT_EQ(store.read_blob(digest).value(), bytes);
  EXPECT_EQ(store.read_blob(image->record.id).value(), image->config_json);
  Fd root(openat(image->root.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Fd etc = open_directory_at(root.get(), "etc").value();
  EXPECT_EQ(read_small_file_at(etc.get(), "passwd").value(), "hello\n");
  EXPECT_THAT(names("tmp"), IsEmpty());
}

TEST_F(Import, OwnersOnDiskAreTheLayouts) {
  ASSERT_TRUE(import("base", small_archive()).has_value());
  Store store = open();
  ImageRef image = store.resolve("base").value();
  const IdMapping ids = mapping_of_caller();
  auto owner = [&](const char* path) {
    struct stat status = {};
    EXPECT_EQ(fstatat(image.root.fd.get(), path, &status, AT_SYMLINK_NOFOLLOW), 0) << path;
    return status;
  };
  const struct stat su = owner("bin/su"), user = owner("home/user"), write = owner("bin/write");
  EXPECT_EQ(su.st_mode & 07777, 04755u);
  EXPECT_EQ(write.st_mode & 07777, 02755u);
  EXPECT_EQ(owner(".").st_mode & 07777, 0755u);
  switch (ids.layout) {
    case IdLayout::kShifted:
      if (image.rootfs.form == RootfsForm::kErofs) {  // as in the image; the wall maps the mount
        EXPECT_EQ(image.disk_base(), 0u);
        EXPECT_EQ(su.st_uid, 0u);
        EXPECT_EQ(owner("home").st_uid, 0u);
        EXPECT_EQ(user.st_uid, 1000u);
        EXPECT_EQ(write.st_gid, 5u);
        break;
      }
      EXPECT_EQ(image.disk_base(), kImageIdBase);
      EXPECT_EQ(su.st_uid, kImageIdBase);
      EXPECT_EQ(owner("home").st_uid, kImageIdBase);  // made on the way
      EXPECT_EQ(user.st_uid, kImageIdBase + 1000);
      EXPECT_EQ(write.st_gid, kImageIdBase + 5);
      break;
    case IdLayout::kSubuid:
      EXPECT_EQ(image.disk_base(), 0u);
      EXPECT_EQ(su.st_uid, ids.uid_base);
      EXPECT_EQ(user.st_uid, geteuid());
      EXPECT_EQ(write.st_gid, ids.gid_base + 5);
      break;
    case IdLayout::kSingle:
      EXPECT_EQ(image.disk_base(), 0u);
      EXPECT_EQ(su.st_uid, geteuid());
      EXPECT_EQ(user.st_uid, geteuid());
      break;
  }
}

TEST_F(Import, OnlyTheOwnerReachesTheStore) {
  ASSERT_TRUE(import("base", small_archive()).has_value());
  struct stat status = {};
  ASSERT_EQ(stat((directory_ / "images").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

// As root: the same with an ordinary user's rights, where nothing but its own id is there.
TEST_F(Import, WorksForAUserWithoutARange) {
  if (geteuid() != 0) {
    EXPECT_NE(mapping_of_caller().layout, IdLayout::kShifted);
    return;
  }
  ASSERT_EQ(chown(directory_.path().c_str(), 4321, 4321), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (setresgid(4321, 4321, 4321) != 0 || setresuid(4321, 4321, 4321) != 0) _exit(10);
    auto report = import("base", small_archive());
    if (!report.has_value()) {
      std::fprintf(stderr, "%s\n", report.error().message().c_str());
      _exit(11);
    }
    if (report->text().find("every file belongs to you") == std::string::npos) _exit(12);
    Store store = open();
    auto image = store.resolve("base");
    struct stat status = {};
    if (!image.has_value() || image->rootfs.ids.layout != IdLayout::kSingle) _exit(13);
    if (fstatat(image->root.fd.get(), "bin/su", &status, 0) != 0) _exit(14);
    if (status.st_uid != 4321 || image->disk_base() != 0) _exit(15);
    image->in_use.reset();
    if (!store.remove("base").has_value()) _exit(16);
    _exit(0);
  }
  const int status = wait_for(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_nothing_left();
}

TEST_F(Import, ForIdsThatAreNotTheCallersItSaysSo) {
  ASSERT_TRUE(import("base", small_archive()).has_value());
  const std::string info = directory_ / ("images/rootfs/" + names("rootfs")[0] + "/info");
  std::string text = read_text(info);
  const std::size_t at = text.find("uid-base ");
  text.replace(at, text.find('\n', at) - at, "uid-base 77777");
  std::ofstream(info) << text;
  auto image = open().resolve("base");
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(image.error().message(), HasSubstr("import it again"));
  // And that is what helps.
  auto again = import("base", small_archive());
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_FALSE(again->already_present);
  EXPECT_TRUE(open().resolve("base").has_value());
}

TEST_F(Import, TheSameBytesAreUnpackedOnce) {
  ASSERT_TRUE(import("one", small_archive()).has_value());
  auto second = import("two:x", small_archive());
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(second->already_present);
  EXPECT_EQ(second->info.rootfs->entries, 7u);  // names, those of directories on the way too
  EXPECT_EQ(names("rootfs").size(), 1u);
  ASSERT_TRUE(open().remove("one").has_value());
  EXPECT_TRUE(open().resolve("two:x").has_value());
  ASSERT_TRUE(open().remove("two:x").has_value());
  expect_nothing_left();
}

TEST_F(Import, AnotherImageOfTheNameReplacesIt) {
  ASSERT_TRUE(import("base", small_archive("one")).has_value());
  ASSERT_TRUE(import("base", small_archive("two")).has_value());
  EXPECT_EQ(names("rootfs").size(), 1u);
  EXPECT_THAT(names("refs"), ElementsAre("base:latest"));
}

TEST_F(Import, AnImageInUseKeepsItsFilesUntilItIsFree) {
  ASSERT_TRUE(import("base", small_archive()).has_value());
  Store store = open();
  ImageRef image = store.resolve("base").value();
  ASSERT_TRUE(store.remove("base").has_value());
  EXPECT_EQ(faccessat(image.root.fd.get(), "etc/passwd", F_OK, 0), 0);
  EXPECT_EQ(names("rootfs").size(), 1u);
  image.in_use.reset();
  open();
  expect_nothing_left();
}

TEST_F(Import, ReadsFromAPipe) {
  const std::string bytes = small_archive();
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd in(ends[0]);
  std::thread writer([&, out = Fd(ends[1])] {
    for (std::string_view rest = bytes; !rest.empty(); rest.remove_prefix(512)) {
      VERIFY(write(out.get(), rest.data(), 512) == 512);
    }
  });
  Store store = open();
  auto report = import_archive(store, "base", in.get());
  writer.join();
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->unpacked.entries, 5u);
}

TEST_F(Import, ReportsProgressUpToTheWhole) {
  const std::string bytes = slow_archive();
  Fd archive = memory_file(bytes);
  Store store = open();
  std::uint64_t last = 0, total = 0;
  ASSERT_TRUE(
      import_archive(store, "base", archive.get(), {}, [&](std::uint64_t done, std::uint64_t all) {
        EXPECT_GE(done, last);
        last = done;
        total = all;
      }).has_value());
  EXPECT_EQ(total, bytes.size());
  EXPECT_GT(last, bytes.size() / 2);
}

TEST_F(Import, HostileArchivesLeaveNothing) {
  const std::string outside = directory_ / "outside";
  std::ofstream(outside) << "untouched";
  const std::string archives[] = {
      Tar().add({.name = "ok"}).add({.name = "../../../../outside", .data = "evil"}).bytes(),
      Tar().add({.name = "l", .type = '2', .link = "l"}).add({.name = "l/x"}).bytes(),
      Tar().add({.name = "x", .type = '1', .link = "../../../../outside"}).bytes(),
      Tar().add({.name = "x", .data = "short", .size = 1 << 30}).unfinished(),
      Tar().add({.name = "d", .type = '5', .mode = 0}).add({.name = "d/x", .uid = 99999}).bytes(),
      std::string(4096, 'x'),
  };
  for (const std::string& bytes : archives) {
    auto report = import("evil", bytes);
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().code(), Code::kInvalidArgument) << report.error().message();
    EXPECT_THAT(report.error().message(), HasSubstr("import evil:latest: "));
    expect_nothing_left();
    EXPECT_EQ(read_text(outside), "untouched");
  }
  // Even a name that would leave goes below the image's own root.
  ASSERT_TRUE(import("fine", Tar().add({.name = outside, .data = "evil"}).bytes()).has_value());
  EXPECT_EQ(read_text(outside), "untouched");
}

TEST_F(Import, LimitsAreErrorsAndLeaveNothing) {
  UnpackLimits limits;
  auto expect = [&](const char* text) {
    auto report = import("base", small_archive(), limits);
    ASSERT_FALSE(report.has_value());
    EXPECT_THAT(report.error().message(), HasSubstr(text));
    expect_nothing_left();
    limits = {};
  };
  limits.entries = 4;
  expect("more than 4 entries");
  limits.bytes = 8;
  expect("larger than 8 bytes");
  limits.archive = 100;
  expect("larger than 100 bytes");
}

TEST_F(Import, TheTimeLimitEndsTheWorker) {
  UnpackLimits limits;
  limits.time = std::chrono::milliseconds(40);
  auto report = import("slow", slow_archive(), limits);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kDeadlineExceeded);
  expect_nothing_left();
}

TEST_F(Import, BadInputIsRefusedBeforeAnything) {
  EXPECT_THAT(import("Bad Name", small_archive()).error().message(), HasSubstr("image name"));
  EXPECT_THAT(import("base", "").error().message(), HasSubstr("empty (0 bytes)"));
  Store store = open();
  Fd folder = open_or_make_directory(directory_.path()).value();
  EXPECT_THAT(import_archive(store, "base", folder.get()).error().message(),
              HasSubstr("is a directory"));
  expect_nothing_left();
}

TEST_F(Import, UnknownNamesAreErrorsThatListWhatThereIs) {
  EXPECT_THAT(open().resolve("base").error().message(), HasSubstr("no images yet"));
  EXPECT_THAT(open().remove("base").error().message(), HasSubstr("no images yet"));
  ASSERT_TRUE(import("base", small_archive()).has_value());
  auto image = open().resolve("basse");
  EXPECT_EQ(image.error().code(), Code::kNotFound);
  EXPECT_THAT(image.error().message(), HasSubstr("there are: base:latest"));
  EXPECT_TRUE(open().contains("base"));
  EXPECT_FALSE(open().contains("basse"));
  EXPECT_FALSE(open().contains("/"));
}

TEST_F(Import, AReferenceWithoutFilesSaysSo) {
  ASSERT_TRUE(import("base", small_archive()).has_value());
  std::filesystem::rename(directory_ / ("images/rootfs/" + names("rootfs")[0]),
                          directory_ / "away");
  auto image = open().resolve("base");
  EXPECT_EQ(image.error().code(), Code::kDataLoss);
  EXPECT_THAT(image.error().message(), HasSubstr("has a name but no files"));
}

TEST_F(Import, TwoAtOnceDoTheWorkOnce) {
  const std::string file = directory_ / "archive.tar";
  std::ofstream(file) << slow_archive();
  std::vector<pid_t> tools;
  for (int i = 0; i < 4; ++i) {
    tools.push_back(start_tool({"import", "image" + std::to_string(i % 2), file}));
  }
  for (pid_t tool : tools) EXPECT_EQ(wait_for(tool), 0);
  EXPECT_EQ(names("rootfs").size(), 1u);
  EXPECT_THAT(names("tmp"), IsEmpty());
  EXPECT_EQ(names("refs").size(), 2u);
}

TEST_F(Import, WhatAKilledImportLeavesIsInvisibleAndSwept) {
  const std::string file = directory_ / "archive.tar";
  std::ofstream(file) << slow_archive();
  int halfway = 0;
  // Killed once its root directory exists and has that many entries.
  for (int entries : {0, 0, 1, 10, 50, 100}) {
    const pid_t tool = start_tool({"import", "base", file});
    while (!ended(tool) && entries_under_way() < entries) {
    }
    kill(tool, SIGKILL);
    wait_for(tool);
    if (names("refs").empty()) {
      if (entries_under_way() >= 0) ++halfway;
      // The worker dies with its parent; it holds the lock until it has.
      for (int i = 0; i < 500 && !names("tmp").empty(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        open();
      }
      expect_nothing_left();
    } else {
      ASSERT_TRUE(open().resolve("base").has_value());
      ASSERT_TRUE(open().remove("base").has_value());
    }
  }
  EXPECT_GE(halfway, 2);  // else this has tested nothing
}

// Two images: one flattens its own layer, the other claims that a public archive is that layer.
TEST_F(Import, AnArchiveCannotMakeAnotherFilesImageItsOwn) {
  const std::string evil = Tar().add({.name = "marker", .data = "evil"}).bytes();
  const std::string good = Tar().add({.name = "marker", .data = "good"}).bytes();
  auto config = [&](const std::string& author) {
    return R"({"os":"linux","architecture":")" + std::string(host_architecture()) +
           R"(","author":")" + author + R"(","rootfs":{"type":"layers","diff_ids":["sha256:)" +
           testing::sha256_of(evil) + R"("]}})";
  };
  const std::string archive =
      Tar()
          .add({.name = "a.json", .data = config("a")})
          .add({.name = "b.json", .data = config("b")})
          .add({.name = "evil.tar", .data = evil})
          .add({.name = "good.tar", .data = good})
          .add({.name = "manifest.json",
                .data = R"([{"Config":"a.json","RepoTags":["a:1"],"Layers":["evil.tar"]},)"
                        R"({"Config":"b.json","RepoTags":["b:1"],"Layers":["good.tar"]}])"})
          .bytes();
  {
    Store store = open();
    const Fd file = memory_file(archive);
    const auto imported =
        import_saved(store, SavedForm::kDockerArchive, file.get(), std::nullopt, {}, {});
    ASSERT_FALSE(imported.has_value());
    EXPECT_EQ(imported.error().code(), Code::kDataLoss) << imported.error().message();
  }
  const auto report = import("good", good);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_FALSE(report->already_present);
  const ImageRef image = open().resolve("good").value();
  Fd root(openat(image.root.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(read_small_file_at(root.get(), "marker").value(), "good");
}

TEST_F(Import, TheWorkerSaysWhenItIsStartedByHand) {
  const std::string worker = helper_binary("caisson-image-worker").value();
  std::FILE* output = popen((worker + " 2>&1").c_str(), "re");
  char text[256] = {};
  ASSERT_NE(std::fgets(text, sizeof text, output), nullptr);
  EXPECT_THAT(text, HasSubstr("not by hand"));
  EXPECT_NE(pclose(output), 0);
}

TEST(WorkerReport, ComesBackAndRefusesRubbish) {
  const UnpackReport report{1, 2, 3, 4, 5};
  const std::string text = encode_report(report);
  const UnpackReport back = decode_report(text).value();
  EXPECT_EQ(back.entries, 1u);
  EXPECT_EQ(back.absolute_names, 5u);
  for (std::string_view bad : {"", "1\n2\n3\n4\n", "1\n2\n3\n4\n5", "1\n2\n3\n4\n5\n6\n",
                               "a\n2\n3\n4\n5\n", "1\n2\n3\n4\n99999999999999999999\n"}) {
    EXPECT_FALSE(decode_report(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace caisson::image
