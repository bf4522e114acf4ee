#include "image/ids.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace caisson::image {
namespace {

TEST(Ids, FindsARangeByNameOrNumber) {
  constexpr std::string_view kText =
      "# comment\nother:100000:65536\nann:1:100\nann:200000:65536\n1234:300000:70000\n";
  EXPECT_EQ(find_range(kText, "ann", 7), 200000u);  // the first of hers is too small
  EXPECT_EQ(find_range(kText, "bob", 1234), 300000u);
  EXPECT_EQ(find_range(kText, "bob", 7), std::nullopt);
  EXPECT_EQ(find_range(kText, "", 7), std::nullopt);
}

TEST(Ids, MalformedRangesAreNone) {
  for (std::string_view text :
       {"ann", "ann:", "ann:1", "ann:x:65536", "ann:1:65536:", "ann:-1:65536", "ann:0:65536",
        "ann:4294967295:65536", "ann:4294967296:65536", ":1:65536", "ann:1:65535"}) {
    EXPECT_EQ(find_range(text, "ann", 7), std::nullopt) << text;
  }
}

TEST(Ids, MapsAsThePageSays) {
  EXPECT_EQ(map_lines({.layout = IdLayout::kShifted, .uid_base = kImageIdBase}, false),
            "0 2147287040 65536\n");
  const IdMapping subuid{.layout = IdLayout::kSubuid,
                         .uid_base = 100000,
                         .gid_base = 200000,
                         .own_uid = 1234,
                         .own_gid = 1235};
  EXPECT_EQ(map_lines(subuid, false), "0 100000 1000\n1000 1234 1\n1001 101001 64535\n");
  EXPECT_EQ(map_lines(subuid, true), "0 200000 1000\n1000 1235 1\n1001 201001 64535\n");
  EXPECT_EQ(map_lines({.layout = IdLayout::kSingle, .own_uid = 5, .own_gid = 6}, true), "0 6 1\n");
}

TEST(Ids, TheShiftedRangeIsNobodysAndNoSandboxs) {
  // Above the sandboxes' (wall/namespace/ids.h), below the range that systemd calls foreign.
  EXPECT_GE(kImageIdBase, 0x7ffd0000u);
  EXPECT_LE(kImageIdBase + kImageIds, 0x7ffe0000u);
}

TEST(Ids, LayoutNamesComeBack) {
  for (IdLayout layout : {IdLayout::kShifted, IdLayout::kSubuid, IdLayout::kSingle}) {
    EXPECT_EQ(parse_id_layout(to_string(layout)), layout);
  }
  EXPECT_EQ(parse_id_layout("other"), std::nullopt);
}

TEST(Ids, TheCallersMappingFitsItsRights) {
  const IdMapping mapping = mapping_of_caller();
  if (geteuid() == 0) {
    EXPECT_EQ(mapping.layout, IdLayout::kShifted);
    EXPECT_EQ(mapping.uid_base, kImageIdBase);
  } else {
    EXPECT_NE(mapping.layout, IdLayout::kShifted);
    EXPECT_EQ(mapping.own_uid, geteuid());
  }
}

}  // namespace
}  // namespace caisson::image
