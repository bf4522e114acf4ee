#include "api/database_secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "api/fleet_for_test.h"
#include "db/teams.h"

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
    DatabaseSecrets secrets(database_, vault_, fleet_);
    auto task = [](io::Loop& on, DatabaseSecrets& under_test, Body& run) -> io::Async<void> {
      co_await run(under_test);
      on.stop();
    };
    loop.spawn(task(loop, secrets, body));
    loop.run();
    database_.reset();
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
  std::shared_ptr<const fleet::Vault> vault_ = std::make_shared<const fleet::Vault>("key");
  FakeFleet fleet_;
};

TEST_F(DatabaseSecretsTest, AValueIsKeptSealedAndOpenedForItsTeam) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const Secrets::Metadata owned = {{"owner", "me"}};
    const auto made =
        co_await secrets.create(first_, "OpenAI", owned, SecretValue("canary-canary-canary"));
    EXPECT_TRUE(made.has_value());
    EXPECT_EQ(made->name, "openai");
    EXPECT_TRUE(made->id.starts_with("sec_"));
    EXPECT_GT(made->created_ms, 0);
    const std::vector<std::string> both = {"openai", "unknown", made->id};
    const auto mine = co_await kept_values(database_, vault_, first_, both);
    EXPECT_EQ(mine->size(), 1u);
    EXPECT_EQ(mine->at(0).name, "openai");
    EXPECT_EQ(mine->at(0).value->bytes(), "canary-canary-canary");
    const auto theirs = co_await kept_values(database_, vault_, second_, both);
    EXPECT_TRUE(theirs->empty());
    // Under another key there is nothing to be had.
    const auto stolen = co_await kept_values(
        database_, std::make_shared<const fleet::Vault>("another"), first_, both);
    EXPECT_FALSE(stolen.has_value());
    EXPECT_FALSE(stored().contains("canary-canary"));
    EXPECT_TRUE(stored().contains("openai")) << "the search finds what is there";
  });
}

TEST_F(DatabaseSecretsTest, ChangesAreToldToWhoUsesThem) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const std::vector<std::string> names = {"a"};
    const Secrets::Metadata none;
    const auto made = co_await secrets.create(first_, "a", none, SecretValue("the value 1"));
    EXPECT_TRUE(fleet_.renewed.empty());
    const auto next =
        co_await secrets.update(first_, made->id, std::nullopt, SecretValue("the value 2"));
    EXPECT_EQ(next->version, 2);
    const auto value = co_await kept_values(database_, vault_, first_, names);
    EXPECT_EQ(value->at(0).value->bytes(), "the value 2");
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
    const auto empty = co_await secrets.create(first_, "a", none, SecretValue("short"));
    EXPECT_THAT(empty.error().message(), HasSubstr("value: the secret's value has 5 bytes"));
    const auto named = co_await secrets.create(first_, "a b", none, SecretValue("the value 1"));
    EXPECT_THAT(named.error().message(), HasSubstr("name: found \"a b\""));
    std::ignore = co_await secrets.create(first_, "a", none, SecretValue("the value 1"));
    const auto bad = co_await secrets.update(first_, "a", std::nullopt, SecretValue("x"));
    EXPECT_FALSE(bad.has_value());
    const auto others =
        co_await secrets.update(second_, "a", std::nullopt, SecretValue("the value 2"));
    EXPECT_EQ(others.error().code(), Code::kNotFound);
    const auto found = co_await secrets.find(first_, "a");
    EXPECT_EQ(found->version, 1);
    EXPECT_TRUE(fleet_.renewed.empty());
  });
}

TEST_F(DatabaseSecretsTest, PagesGoOnFromOneAnother) {
  with_secrets([this](DatabaseSecrets& secrets) -> io::Async<void> {
    const Secrets::Metadata none;
    for (const char* name : {"a", "b", "c"})
      std::ignore = co_await secrets.create(first_, name, none, SecretValue("the value 1"));
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
