#include "api/database_secrets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "api/fleet_for_test.h"
#include "db/teams.h"
#include "vault/engine.h"

namespace caisson::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DatabaseSecretsTest : public testing::Test {
 protected:
  DatabaseSecretsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "secrets-XXXXXX";
    VERIFY(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
  }
  ~DatabaseSecretsTest() override { std::filesystem::remove_all(directory_); }

  // Runs a body on a loop over a database with two teams.
  template <typename Body>
  void with_secrets(Body body) {
    io::Loop loop(1);
    auto opened = db::Database::open(directory_ + "/db");
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    db::Teams teams(*opened);
    first_ = teams.find(db::kDefaultTeam)->id;
    second_ = teams.create("other", "Other", {}, 1)->id;
    database_ = std::make_shared<fleet::SharedDatabase>(loop, std::move(*opened));
    DatabaseSecrets secrets(loop, database_, vault_, fleet_);
    auto task = [](io::Loop& on, DatabaseSecrets& under_test, Body& run) -> io::Async<void> {
      co_await run(under_test);
      on.stop();
    };
    loop.spawn(task(loop, secrets, body));
    loop.run();
    database_.reset();
  }

  // A request's body, in its pipe.
  static Fd body_of(const std::string& value) {
    const std::string text = R"({"value":")" + value + R"("})";
    int ends[2];
    VERIFY(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const Fd in(ends[1]);
    VERIFY(::write(in.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return Fd(ends[0]);
  }
  io::Async<SealedSecret> sealed_value(DatabaseSecrets& secrets, std::string secret,
                                       std::string value) {
    auto sealed = co_await secrets.seal(first_, std::move(secret), body_of(value));
    VERIFY(sealed.has_value());
    co_return std::move(*sealed);
  }

  // All files of the database as they lie on the disk.
  std::string stored() const {
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(directory_)) {
      std::ifstream in(file.path(), std::ios::binary);
      all.append(std::istreambuf_iterator<char>(in), {});
    }
    return all;
  }

  std::string directory_, first_, second_;
  std::shared_ptr<fleet::SharedDatabase> database_;
  std::shared_ptr<const vault::Vault> vault_ = std::make_shared<const vault::Engine>("key");
  FakeFleet fleet_;
};

TEST_F(DatabaseSecretsTest, AValueIsKeptSealedAndIsItsTeamsAlone) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const Secrets::Metadata owned = {{"owner", "me"}};
    SealedSecret sealed = co_await sealed_value(secrets, "", "canary-canary-canary");
    EXPECT_EQ(sealed.rest, R"({"value":""})");
    const auto made = co_await secrets.create(first_, "OpenAI", owned, sealed);
    EXPECT_TRUE(made.has_value());
    EXPECT_EQ(made->name, "openai");
    EXPECT_EQ(made->id, sealed.id);
    EXPECT_TRUE(made->id.starts_with("sec_"));
    EXPECT_GT(made->created_ms, 0);
    const std::vector<std::string> both = {"openai", "unknown", made->id};
    const auto mine = co_await kept_values(database_, first_, both);
    EXPECT_EQ(mine->size(), 1u);
    EXPECT_EQ(mine->at(0).name, "openai");
    EXPECT_EQ(mine->at(0).kept_id, made->id);
    EXPECT_EQ(mine->at(0).kept, sealed.sealed);
    EXPECT_EQ(mine->at(0).value, nullptr);
    const auto theirs = co_await kept_values(database_, second_, both);
    EXPECT_TRUE(theirs->empty());
    EXPECT_FALSE(stored().contains("canary-canary"));
    EXPECT_TRUE(stored().contains("openai")) << "the search finds what is there";
  });
}

TEST_F(DatabaseSecretsTest, ChangesAreToldToWhoUsesThem) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const std::vector<std::string> names = {"a"};
    const Secrets::Metadata none;
    SealedSecret value = co_await sealed_value(secrets, "", "the value 1");
    const auto made = co_await secrets.create(first_, "a", none, value);
    EXPECT_TRUE(fleet_.renewed.empty());
    for (const std::string& by : {made->id, std::string("A")}) {
      value = co_await sealed_value(secrets, by, "the value 2");
      EXPECT_EQ(value.id, made->id);
    }
    const auto next = co_await secrets.update(first_, std::nullopt, value);
    EXPECT_EQ(next->version, 2);
    const auto kept = co_await kept_values(database_, first_, names);
    EXPECT_EQ(kept->at(0).kept, value.sealed);
    const Status removed = co_await secrets.remove(first_, "A");
    EXPECT_TRUE(removed.has_value());
    EXPECT_THAT(fleet_.renewed, ElementsAre(first_ + "/a", first_ + "/a"));
    const auto gone = co_await secrets.find(first_, "a");
    EXPECT_EQ(gone.error().code(), Code::kNotFound);
  });
}

TEST_F(DatabaseSecretsTest, WhatIsRefusedChangesNothing) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const Secrets::Metadata none;
    const auto empty = co_await secrets.seal(first_, "", body_of("short"));
    EXPECT_THAT(empty.error().message(), HasSubstr("value: the secret's value has 5 bytes"));
    SealedSecret value = co_await sealed_value(secrets, "", "the value 1");
    const auto named = co_await secrets.create(first_, "a b", none, value);
    EXPECT_THAT(named.error().message(), HasSubstr("name: found \"a b\""));
    const auto made = co_await secrets.create(first_, "a", none, value);
    EXPECT_TRUE(made.has_value());
    const auto others = co_await secrets.seal(second_, "a", body_of("the value 2"));
    EXPECT_EQ(others.error().code(), Code::kNotFound);
    const auto also = co_await secrets.update(second_, std::nullopt, value);
    EXPECT_EQ(also.error().code(), Code::kNotFound);
    const auto found = co_await secrets.find(first_, "a");
    EXPECT_EQ(found->version, 1);
    EXPECT_TRUE(fleet_.renewed.empty());
  });
}

TEST_F(DatabaseSecretsTest, PagesGoOnFromOneAnother) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const Secrets::Metadata none;
    const SealedSecret value = co_await sealed_value(secrets, "", "the value 1");
    for (const char* name : {"a", "b", "c"}) {
      SealedSecret own = value;
      own.id.back() = *name;
      std::ignore = co_await secrets.create(first_, name, none, own);
    }
    const auto first = co_await secrets.list(first_, 2, "");
    EXPECT_EQ(first->secrets.size(), 2u);
    const auto second = co_await secrets.list(first_, 2, first->next_token);
    EXPECT_EQ(second->secrets.size(), 1u);
    EXPECT_EQ(second->secrets.at(0).name, "c");
    EXPECT_EQ(second->next_token, "");
    const auto wrong = co_await secrets.list(first_, 2, "?");
    EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace caisson::api
