#include "db/templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/database_for_test.h"
#include "db/sandboxes.h"

namespace caisson::db {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class TemplatesTest : public DatabaseTest {
 protected:
  static TemplateReference reference(std::string_view text) {
    return parse_template_reference(text).value();
  }
  // A template with a ready build of that image, tagged default.
  Template ready(const Team& team, std::string_view name, std::string_view image) {
    const Template made = templates_.ensure(team.id, name, 1).value();
    const Build build = builds_.add(team.id, made.id, {"default"}, {}, 1).value();
    EXPECT_TRUE(builds_.finish(build.id, image, 2));
    return templates_.find(team.id, made.id).value();
  }

  Templates templates_{database_};
  Builds builds_{database_};
};

TEST_F(TemplatesTest, ANameMeansOneTemplateOfATeam) {
  const Template made = templates_.ensure(ours_.id, "tools", 5).value();
  EXPECT_THAT(made.id, MatchesRegex("[a-z0-9]{20}"));
  EXPECT_THAT(made.names, ElementsAre("tools"));
  EXPECT_EQ(templates_.ensure(ours_.id, "tools", 6).value(), made);
  EXPECT_NE(templates_.ensure(theirs_.id, "tools", 6)->id, made.id);
  EXPECT_EQ(templates_.ensure(ours_.id, "Tools", 6).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(templates_.ensure("none", "tools", 6).error().code(), Code::kFailedPrecondition);
}

TEST_F(TemplatesTest, AreFoundByNameIdAndNamespace) {
  const Template made = templates_.ensure(ours_.id, "tools", 5).value();
  for (const std::string& text : {std::string("tools"), made.id, std::string("default/tools"),
                                  "default/" + made.id, std::string("tools:any")}) {
    EXPECT_EQ(templates_.find(ours_.id, reference(text)).value(), made) << text;
  }
  for (const char* text : {"tool", "theirs/tools", "none/tools"}) {
    EXPECT_EQ(templates_.find(ours_.id, reference(text)).error().code(), Code::kNotFound) << text;
  }
}

TEST_F(TemplatesTest, AnotherTeamsAreNotThere) {
  const Template made = ready(ours_, "tools", "img");
  const std::string& team = theirs_.id;
  const std::string build = templates_.resolve(ours_.id, reference("tools"))->build.id;
  for (const std::string& text : {std::string("tools"), made.id, std::string("default/tools")}) {
    EXPECT_EQ(templates_.find(team, reference(text)).error().code(), Code::kNotFound);
    EXPECT_EQ(templates_.resolve(team, reference(text)).error().code(), Code::kNotFound);
  }
  EXPECT_EQ(templates_.find(team, made.id).error().code(), Code::kNotFound);
  EXPECT_THAT(templates_.list(team, {})->rows, IsEmpty());
  EXPECT_EQ(templates_.remove(team, made.id).error().code(), Code::kNotFound);
  EXPECT_EQ(templates_.tags(team, made.id).error().code(), Code::kNotFound);
  EXPECT_EQ(templates_.set_tags(team, made.id, build, {"a"}, 1).error().code(), Code::kNotFound);
  EXPECT_EQ(templates_.remove_tags(team, made.id, {"default"}).error().code(), Code::kNotFound);
  EXPECT_EQ(builds_.add(team, made.id, {}, {}, 1).error().code(), Code::kNotFound);
  EXPECT_EQ(builds_.find(team, made.id, build).error().code(), Code::kNotFound);
  EXPECT_THAT(builds_.list(team, made.id, 10).value(), IsEmpty());
  EXPECT_TRUE(templates_.resolve(ours_.id, reference("tools")));
}

TEST_F(TemplatesTest, APublicOneIsUsedByOtherTeamsAndNotTheirs) {
  const Template made = ready(ours_, "tools", "img");
  const std::string& team = theirs_.id;
  EXPECT_EQ(templates_.find_usable(team, reference(made.id)).error().code(),
            Code::kPermissionDenied);
  EXPECT_EQ(templates_.find_usable(team, reference("default/tools")).error().code(),
            Code::kPermissionDenied);
  EXPECT_EQ(templates_.find_usable(team, reference("tools")).error().code(), Code::kNotFound);
  EXPECT_EQ(templates_.set_visibility(team, made.id, Visibility::kPublic, 3).error().code(),
            Code::kNotFound);
  ASSERT_TRUE(templates_.set_visibility(ours_.id, made.id, Visibility::kPublic, 3));
  EXPECT_TRUE(templates_.find_usable(team, reference(made.id))->is_public);
  EXPECT_EQ(templates_.find_usable(team, reference("default/tools"))->space, "default");
  EXPECT_EQ(templates_.resolve(team, reference("default/tools"))->build.image, "img");
  EXPECT_EQ(templates_.find(team, made.id).error().code(), Code::kNotFound);
  EXPECT_EQ(templates_.remove(team, made.id).error().code(), Code::kNotFound);
  // One's own goes before another's.
  const Template own = ready(theirs_, "tools", "own");
  EXPECT_EQ(templates_.find_usable(team, reference("tools")).value(), own);
  ASSERT_TRUE(templates_.set_visibility(ours_.id, made.id, Visibility::kTeam, 4));
  EXPECT_EQ(templates_.resolve(team, reference(made.id)).error().code(), Code::kNotFound);
}

TEST_F(TemplatesTest, BuildsThatNoTagMeansLetGoOfTheirImages) {
  const Template made = ready(ours_, "tools", "one");
  const Build next = builds_.add(ours_.id, made.id, {"default"}, {}, 3).value();
  ASSERT_TRUE(builds_.finish(next.id, "two", 4));
  EXPECT_EQ(templates_.drop_untagged(theirs_.id, made.id).error().code(), Code::kNotFound);
  EXPECT_THAT(templates_.drop_untagged(ours_.id, made.id).value(), ElementsAre("one"));
  EXPECT_THAT(templates_.drop_untagged(ours_.id, made.id).value(), IsEmpty());
  EXPECT_EQ(templates_.resolve(ours_.id, reference("tools"))->build.image, "two");
  ASSERT_TRUE(templates_.remove_tags(ours_.id, made.id, {"default"}));
  EXPECT_THAT(templates_.drop_untagged(ours_.id, made.id).value(), ElementsAre("two"));
}

TEST_F(TemplatesTest, ATagMeansABuildThatIsReady) {
  const Template made = ready(ours_, "tools", "img1");
  const ResolvedTemplate first = templates_.resolve(ours_.id, reference("tools")).value();
  EXPECT_EQ(first.found, made);
  EXPECT_EQ(first.build.image, "img1");
  EXPECT_EQ(first.build.status, BuildStatus::kReady);
  // The next build takes the tag when it is ready, and not before.
  const Build next = builds_.add(ours_.id, made.id, {"default", "v2"}, {}, 3).value();
  EXPECT_EQ(templates_.resolve(ours_.id, reference("tools"))->build.image, "img1");
  const auto early = templates_.resolve(ours_.id, reference("tools:v2"));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code(), Code::kNotFound);
  EXPECT_THAT(early.error().message(), HasSubstr("v2"));
  ASSERT_TRUE(builds_.finish(next.id, "img2", 4));
  EXPECT_EQ(templates_.resolve(ours_.id, reference("tools"))->build.image, "img2");
  EXPECT_EQ(templates_.resolve(ours_.id, reference("tools:v2"))->build.image, "img2");
  EXPECT_EQ(templates_.find(ours_.id, made.id)->updated_ms, 4);
}

TEST_F(TemplatesTest, TagsAreSetAndRemovedTogether) {
  const Template made = ready(ours_, "tools", "img");
  const std::string build = templates_.resolve(ours_.id, reference("tools"))->build.id;
  ASSERT_TRUE(templates_.set_tags(ours_.id, made.id, build, {"b", "a"}, 9));
  EXPECT_THAT(
      templates_.tags(ours_.id, made.id).value(),
      ElementsAre(TagInfo{"a", build, 9}, TagInfo{"b", build, 9}, TagInfo{"default", build, 2}));
  EXPECT_EQ(templates_.remove_tags(ours_.id, made.id, {"a", "none"}).error().code(),
            Code::kNotFound);
  EXPECT_EQ(templates_.tags(ours_.id, made.id)->size(), 3u);
  ASSERT_TRUE(templates_.remove_tags(ours_.id, made.id, {"a", "b"}));
  EXPECT_EQ(templates_.tags(ours_.id, made.id)->size(), 1u);
}

TEST_F(TemplatesTest, WhatCannotBeTaggedIsRefused) {
  const Template made = ready(ours_, "tools", "img");
  const std::string build = templates_.resolve(ours_.id, reference("tools"))->build.id;
  EXPECT_EQ(templates_.set_tags(ours_.id, made.id, build, {"a b"}, 1).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(templates_.set_tags(ours_.id, made.id, "none", {"a"}, 1).error().code(),
            Code::kNotFound);
  const Build waiting = builds_.add(ours_.id, made.id, {}, {}, 1).value();
  EXPECT_EQ(templates_.set_tags(ours_.id, made.id, waiting.id, {"a"}, 1).error().code(),
            Code::kFailedPrecondition);
  const Template other = ready(ours_, "other", "img");
  EXPECT_EQ(templates_.set_tags(ours_.id, other.id, build, {"a"}, 1).error().code(),
            Code::kNotFound);
}

TEST_F(TemplatesTest, RemovalTellsWhichImagesNobodyNeeds) {
  const Template made = ready(ours_, "tools", "alone");
  const std::string shared = builds_.add(ours_.id, made.id, {}, {}, 1).value().id;
  ASSERT_TRUE(builds_.finish(shared, "shared", 2));
  const std::string used = builds_.add(ours_.id, made.id, {}, {}, 1).value().id;
  ASSERT_TRUE(builds_.finish(used, "used", 2));
  ready(theirs_, "other", "shared");
  SandboxRow sandbox = {.id = "i1", .team_id = ours_.id, .image = "used"};
  ASSERT_TRUE(Sandboxes(database_).put(sandbox));
  EXPECT_THAT(templates_.images_of_any_team().value(), ElementsAre("alone", "shared", "used"));
  EXPECT_THAT(templates_.remove(ours_.id, made.id).value(), ElementsAre("alone"));
  EXPECT_THAT(templates_.images_of_any_team().value(), ElementsAre("shared", "used"));
  EXPECT_EQ(templates_.find(ours_.id, made.id).error().code(), Code::kNotFound);
  EXPECT_EQ(templates_.remove(ours_.id, made.id).error().code(), Code::kNotFound);
  EXPECT_EQ(builds_.find(ours_.id, made.id, shared).error().code(), Code::kNotFound);
  // The name is free again.
  EXPECT_NE(templates_.ensure(ours_.id, "tools", 9)->id, made.id);
}

TEST_F(TemplatesTest, ListsBuiltOnesAndSnapshotsApartInPages) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(templates_.ensure(ours_.id, "t" + std::to_string(i), i / 2));
  }
  ASSERT_TRUE(templates_.add_snapshot(
      ours_.id, {.source_sandbox = "i1", .name = "kept", .image = "s", .size = {}}, 9));
  std::vector<std::string> seen;
  TemplateFilter filter = {.limit = 2};
  do {
    const TemplatePage page = templates_.list(ours_.id, filter).value();
    for (const Template& one : page.rows) seen.push_back(one.names.at(0));
    filter.after = page.next;
  } while (filter.after.has_value());
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen.front(), "t4");
  const auto names = [&](const TemplateFilter& one) {
    return templates_.list(ours_.id, one)->rows.size();
  };
  EXPECT_EQ(names({.kind = TemplateKind::kSnapshot}), 1u);
  EXPECT_EQ(names({.kind = TemplateKind::kSnapshot, .source_sandbox = "i1"}), 1u);
  EXPECT_EQ(names({.kind = TemplateKind::kSnapshot, .source_sandbox = "i2"}), 0u);
  EXPECT_EQ(names({.kind = TemplateKind::kSnapshot, .name = "kept"}), 1u);
  EXPECT_EQ(names({.kind = TemplateKind::kSnapshot, .name = "t1"}), 0u);
  EXPECT_EQ(names({.name = "t1"}), 1u);
  EXPECT_EQ(names({.limit = 0}), 0u);
}

TEST_F(TemplatesTest, ASnapshotIsATemplateThatIsReady) {
  const AddedSnapshot made =
      templates_
          .add_snapshot(ours_.id,
                        {.source_sandbox = "i1",
                         .name = "",
                         .image = "layer1",
                         .size = {.cpu_milli = 1000, .memory = 2, .disk = 3}},
                        5)
          .value();
  EXPECT_THAT(made.added.names, IsEmpty());
  EXPECT_EQ(made.added.source_sandbox, "i1");
  const ResolvedTemplate found = templates_.resolve(ours_.id, reference(made.added.id)).value();
  EXPECT_EQ(found.found, made.added);
  EXPECT_EQ(found.build.image, "layer1");
  EXPECT_EQ(found.build.size, (BuildSize{.cpu_milli = 1000, .memory = 2, .disk = 3}));
  EXPECT_EQ(found.build.finished_ms, 5);
}

TEST_F(TemplatesTest, ASnapshotsShapeIsKeptAndBounded) {
  Snapshot one = {.source_sandbox = "i1", .name = "kept", .image = "a", .size = {}};
  one.shape = R"({"a":1})";
  const AddedSnapshot made = templates_.add_snapshot(ours_.id, one, 5).value();
  EXPECT_EQ(templates_.resolve(ours_.id, reference(made.added.id))->shape, one.shape);
  one.shape = R"({"a":2})";
  ASSERT_TRUE(templates_.add_snapshot(ours_.id, one, 6));
  EXPECT_EQ(templates_.resolve(ours_.id, reference(made.added.id))->shape, one.shape);
  // As one of an earlier version.
  ASSERT_TRUE(database_.sqlite().run_script("DELETE FROM snapshot_shapes"));
  EXPECT_EQ(templates_.resolve(ours_.id, reference(made.added.id))->shape, "");
  one.shape.assign(kMaxShape + 1, ' ');
  EXPECT_EQ(templates_.add_snapshot(ours_.id, one, 7).error().code(), Code::kInvalidArgument);
}

TEST_F(TemplatesTest, ANamedSnapshotIsReplacedByTheNext) {
  const Snapshot first = {.source_sandbox = "i1", .name = "kept", .image = "one", .size = {}};
  const Snapshot second = {.source_sandbox = "i2", .name = "kept", .image = "two", .size = {}};
  const AddedSnapshot old = templates_.add_snapshot(ours_.id, first, 5).value();
  EXPECT_THAT(old.unused_images, IsEmpty());
  const AddedSnapshot made = templates_.add_snapshot(ours_.id, second, 6).value();
  EXPECT_EQ(made.added.id, old.added.id);
  EXPECT_EQ(made.added.source_sandbox, "i2");
  EXPECT_THAT(made.unused_images, ElementsAre("one"));
  EXPECT_EQ(templates_.resolve(ours_.id, reference("default/kept:default"))->build.image, "two");
  EXPECT_EQ(templates_.find(ours_.id, made.added.id).value(), made.added);
}

TEST_F(TemplatesTest, SnapshotsAndBuiltTemplatesDoNotShareNames) {
  ready(ours_, "tools", "img");
  EXPECT_EQ(
      templates_
          .add_snapshot(ours_.id,
                        {.source_sandbox = "i1", .name = "tools", .image = "s", .size = {}}, 1)
          .error()
          .code(),
      Code::kAlreadyExists);
  ASSERT_TRUE(templates_.add_snapshot(
      ours_.id, {.source_sandbox = "i1", .name = "kept", .image = "s", .size = {}}, 1));
  EXPECT_EQ(templates_.ensure(ours_.id, "kept", 1).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(templates_
                .add_snapshot(ours_.id,
                              {.source_sandbox = "i1", .name = "a b", .image = "s", .size = {}}, 1)
                .error()
                .code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      templates_
          .add_snapshot("none", {.source_sandbox = "i1", .name = "", .image = "s", .size = {}}, 1)
          .error()
          .code(),
      Code::kFailedPrecondition);
}

}  // namespace
}  // namespace caisson::db
