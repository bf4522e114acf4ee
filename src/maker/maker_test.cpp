// A maker in a process of its own and the client that asks it, over folders of the test's. Making
// sandboxes is the integration tests'.
#include "maker/maker.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/sys.h"
#include "image/config.h"
#include "image/store.h"
#include "maker/client.h"
#include "maker/group.h"

namespace caisson::maker {
namespace {

namespace fs = std::filesystem;

class MakerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "maker-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("CAISSON_RUN_DIR", (folder_ / "run").c_str(), 1);
    ::setenv("CAISSON_STATE_DIR", (folder_ / "state").c_str(), 1);
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::_exit(run_maker(ends[1], {.requests = 8, .builders = 10}));
    }
    ::close(ends[1]);
    client_.emplace(Fd(ends[0]));
  }
  void TearDown() override {
    client_.reset();
    if (pid_ > 0) EXPECT_EQ(status_of_end(), 0);
    fs::remove_all(folder_);
  }
  int status_of_end() {
    int status = -1;
    EXPECT_EQ(::waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return status;
  }
  // A socket where a supervisor's would be.
  Fd listen_as(const std::string& id) const {
    const fs::path place = folder_ / "run/sandboxes" / id;
    fs::create_directories(place);
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    (place / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return socket;
  }

  fs::path folder_;
  pid_t pid_ = -1;
  std::optional<Client> client_;
};

TEST_F(MakerTest, HandsOutAConnectionToASandbox) {
  const Fd listener = listen_as("abcd0000");
  auto connected = client_->connect("abcd0000");
  ASSERT_TRUE(connected.has_value()) << connected.error().message();
  const Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(::write(connected->get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(accepted.get(), &byte, 1), 1);
}

TEST_F(MakerTest, ASandboxThatHasGoneIsNotFound) {
  EXPECT_EQ(client_->connect("abcd0000").error().code(), Code::kNotFound);
  listen_as("abcd0001").reset();
  EXPECT_EQ(client_->connect("abcd0001").error().code(), Code::kNotFound);
}

TEST_F(MakerTest, OneThatDoesNotAnswerHoldsNobodyUp) {
  const Fd listener = listen_as("abcd0000");
  std::vector<Fd> waiting;
  for (;;) {
    auto connected = client_->connect("abcd0000");
    if (!connected.has_value()) {
      EXPECT_EQ(connected.error().code(), Code::kUnavailable);
      break;
    }
    ASSERT_LT(waiting.size(), 100u);
    waiting.push_back(std::move(*connected));
  }
  EXPECT_TRUE(client_->images().has_value());
}

TEST_F(MakerTest, ListsAndFindsImages) {
  const auto images = client_->images();
  ASSERT_TRUE(images.has_value()) << images.error().message();
  EXPECT_TRUE(images->empty());
  EXPECT_EQ(client_->find_image("nothing", NamedBy::kOperator).error().code(), Code::kNotFound);
  EXPECT_EQ(client_->find_image("a b", NamedBy::kOperator).error().code(), Code::kInvalidArgument);
  for (const char* hidden : {"nothing", "sha256:00", "abcdef012345", "caisson-snapshot/x"})
    EXPECT_EQ(client_->find_image(hidden, NamedBy::kClient).error().code(), Code::kNotFound)
        << hidden;
  EXPECT_TRUE(client_->kept()->empty());
}

TEST_F(MakerTest, SnapshotsOfWhatIsNotThereAreErrors) {
  EXPECT_EQ(client_->take_snapshot("abcd0000", "nothing").error().code(), Code::kNotFound);
  EXPECT_EQ(client_->take_snapshot("../x", "nothing").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(client_->take_snapshot("abcd0000", "").error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(client_->old_snapshots()->empty());
  EXPECT_TRUE(client_->drop_snapshot("sha256:" + std::string(64, 'a')).has_value());
}

TEST_F(MakerTest, NamesOfTemplatesAreNobodysToFind) {
  const std::string name = std::string(kTemplateNames) + "t1:b1";
  EXPECT_EQ(client_->find_image(name, NamedBy::kClient).error().code(), Code::kNotFound);
  EXPECT_TRUE(client_->template_images().value().empty());
  EXPECT_TRUE(client_->drop_template_image(name).has_value());
  EXPECT_EQ(client_->drop_template_image("base").error().code(), Code::kInvalidArgument);
}

TEST_F(MakerTest, WhatANameMeansIsTold) {
  image::Store store = image::Store::open().value();
  image::ImageConfig config;
  config.architecture = image::host_architecture();
  for (const char* command : {"one", "two"}) {
    config.cmd = {command};
    const std::string id =
        store.add_record({.config = image::encode(config), .layers = {}, .manifest = {}})
            .value()
            .record.id;
    ASSERT_TRUE(store.set_reference({.name = "tool"}, id).has_value());
    for (const NamedBy who : {NamedBy::kClient, NamedBy::kOperator})
      EXPECT_EQ(client_->find_image("tool", who).value(), "sha256:" + id);
  }
}

TEST_F(MakerTest, WhatABuildHasJustPulledIsNotNamedAmongItsTemplates) {
  const auto name = [](const std::string& text) {
    return image::Reference{.name = std::string(kTemplateNames) + text};
  };
  image::Store store = image::Store::open().value();
  image::ImageConfig config;
  config.architecture = image::host_architecture();
  const std::string id =
      store.add_record({.config = image::encode(config), .layers = {}, .manifest = {}})
          .value()
          .record.id;
  for (const char* text : {"pulled-1", "pulled-2", "t1"})
    ASSERT_TRUE(store.set_reference(name(text), id).has_value());
  const auto names = [&] {
    std::set<std::string> all;
    for (const NamedImage& one : client_->template_images().value()) {
      EXPECT_EQ(one.image, "sha256:" + id);
      all.insert(one.name.substr(kTemplateNames.size()));
    }
    return all;
  };
  EXPECT_EQ(names(), (std::set<std::string>{"t1:latest"}));
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "state"))
    if (entry.path().filename() == name("pulled-2").file_name())
      std::ofstream(entry.path()) << image::ReferenceRecord{.image_id = id, .set_at = 1}.encode();
  EXPECT_EQ(names(), (std::set<std::string>{"pulled-2:latest", "t1:latest"}));
}

TEST_F(MakerTest, TrimsTheCacheOfAStore) {
  EXPECT_TRUE(client_->trim_cache({.bytes = 0, .seconds = {}}).has_value());
  EXPECT_FALSE(fs::exists(folder_ / "state"));  // there was none
  EXPECT_TRUE(client_->images().has_value());
  fs::path cache;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "state"))
    if (entry.path().filename() == "images") cache = entry.path() / "cache";
  ASSERT_FALSE(cache.empty());
  fs::create_directory(cache);
  const fs::path entry = cache / std::string(64, 'a');
  std::ofstream(entry) << "nonsense";
  const Status trimmed = client_->trim_cache({.bytes = {}, .seconds = {}});
  EXPECT_TRUE(trimmed.has_value()) << trimmed.error().message();
  EXPECT_FALSE(fs::exists(entry));
}

TEST_F(MakerTest, ABuilderEndsWithItsLife) {
  auto builder = client_->start_builder();
  // The program is not beside every test.
  if (!builder.has_value()) {
    EXPECT_EQ(builder.error().code(), Code::kNotFound) << builder.error().message();
    return;
  }
  builder->life.reset();
  ::shutdown(builder->socket.get(), SHUT_WR);
  char room[4096];
  while (::recv(builder->socket.get(), room, sizeof room, 0) > 0) {
  }
}

TEST_F(MakerTest, BuildersHaveABoundOfTheirOwn) {
  std::vector<Builder> builders;
  for (;;) {
    auto builder = client_->start_builder();
    if (!builder.has_value()) {
      if (builder.error().code() == Code::kNotFound) return;  // as above
      EXPECT_EQ(builder.error().code(), Code::kResourceExhausted);
      EXPECT_TRUE(builder.error().message().starts_with("10 builds are under way"))
          << builder.error().message();
      break;
    }
    builders.push_back(std::move(*builder));
    // More of them than there may be requests hold up none.
    EXPECT_TRUE(client_->images().has_value()) << builders.size();
  }
  EXPECT_EQ(builders.size(), 10u);
  // Where one has ended there is room for another.
  builders.pop_back();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  bool again = false;
  while (!again && std::chrono::steady_clock::now() < until)
    again = client_->start_builder().has_value();
  EXPECT_TRUE(again);
}

TEST_F(MakerTest, TellsWhyASandboxCannotBeMade) {
  const auto made = client_->make({.image = "nothing"});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kNotFound) << made.error().message();
}

TEST_F(MakerTest, TheHostsFilesAndWhatIsNoImageAreNotMadeInto) {
  for (const char* image : {"host", "sha256:0123456789ab", "sha256:../x", "a:b:c"})
    EXPECT_EQ(client_->make({.image = image}).error().code(), Code::kInvalidArgument) << image;
  for (const std::string& image : {std::string("0123456789ab"), "sha256:" + std::string(64, 'a')})
    EXPECT_EQ(client_->make({.image = image}).error().code(), Code::kNotFound) << image;
}

TEST_F(MakerTest, RequestsThatAreNoneDoNotStopIt) {
  ASSERT_TRUE(sys::send_message(client_->control_fd(), "nonsense", {}).has_value());
  const std::string long_one(10'000, 'x');
  ASSERT_TRUE(sys::send_message(client_->control_fd(), long_one, {}).has_value());
  const int many[] = {0, 1, 2};
  ASSERT_TRUE(sys::send_message(client_->control_fd(), "nonsense", many).has_value());
  EXPECT_TRUE(client_->images().has_value());
}

TEST_F(MakerTest, WhenItHasGoneTheClientSaysSo) {
  ASSERT_EQ(::kill(pid_, SIGKILL), 0);
  static_cast<void>(status_of_end());
  EXPECT_EQ(client_->images().error().code(), Code::kUnavailable);
}

TEST(EnterGroup, AGroupThatIsNotThereIsAnError) {
  const auto entered = enter_group("/no-such-group-of-caisson");
  ASSERT_FALSE(entered.has_value());
  EXPECT_TRUE(entered.error().message().contains("control groups of version 2") ||
              entered.error().message().contains("sandbox_group"))
      << entered.error().message();
}

}  // namespace
}  // namespace caisson::maker
