#include "api/e2b/multipart.h"

#include <gtest/gtest.h>

namespace caisson::api::e2b {
namespace {

using Kind = MultipartReader::Event::Kind;

// Every event as text: "part NAME FILE", "data …", "end part", "end", "more", "error: …". The body
// is fed in pieces of `piece` bytes.
std::string read_all(std::string_view body, std::size_t piece, std::string_view boundary = "b") {
  MultipartReader reader(boundary);
  std::string text, data;
  for (;;) {
    Result<MultipartReader::Event> event = reader.next();
    if (!event) return text + "error: " + event.error().message();
    switch (event->kind) {
      case Kind::kMore:
        if (body.empty()) return text + "more";
        reader.feed(body.substr(0, piece));
        body.remove_prefix(std::min(piece, body.size()));
        break;
      case Kind::kPart:
        text += "part " + event->part.name + " " + event->part.file_name.value_or("-") + "; ";
        break;
      case Kind::kData:
        data += event->data;
        break;
      case Kind::kPartEnd:
        text += "data " + data + "; ";
        data.clear();
        break;
      case Kind::kEnd:
        return text + "end";
    }
  }
}

// The same whatever pieces it comes in.
std::string parsed(std::string_view body, std::string_view boundary = "b") {
  const std::string whole = read_all(body, body.size() + 1, boundary);
  for (const std::size_t piece : {1, 2, 3, 7})
    EXPECT_EQ(read_all(body, piece, boundary), whole) << piece;
  return whole;
}

constexpr std::string_view kHead = "Content-Disposition: form-data; name=\"file\"";

std::string part(std::string_view head, std::string_view data) {
  return "--b\r\n" + std::string(head) + "\r\n\r\n" + std::string(data) + "\r\n";
}

TEST(Multipart, PartsComeInOrder) {
  EXPECT_EQ(
      parsed(part("Content-Disposition: form-data; name=\"file\"; filename=\"/a/x y\"", "one") +
             part("content-disposition:form-data;name=n", "") + "--b--\r\n"),
      "part file /a/x y; data one; part n -; data ; end");
}

TEST(Multipart, BytesThatLookLikeABoundaryAreData) {
  EXPECT_EQ(parsed(part(kHead, "x\r\n--\r\n-b\r--b\n--b") + "--b--"),
            "part file -; data x\r\n--\r\n-b\r--b\n--b; end");
}

TEST(Multipart, PreambleEpilogueAndSpacesBehindABoundaryAreIgnored) {
  EXPECT_EQ(parsed("hello --b there\r\n--b \t\r\n" + std::string(kHead) +
                   "\r\n\r\nx\r\n--b--\r\nmore --b"),
            "part file -; data x; end");
}

TEST(Multipart, ABodyWithoutPartsIsEmpty) {
  EXPECT_EQ(parsed("--b--\r\n"), "end");
}

TEST(Multipart, ACutOffBodyWantsMore) {
  EXPECT_EQ(parsed(""), "more");
  EXPECT_EQ(parsed("--b\r\n" + std::string(kHead) + "\r\n\r\nabc"), "part file -; more");
  EXPECT_EQ(parsed(part(kHead, "abc") + "--b-"), "part file -; data abc; more");
}

TEST(Multipart, MalformedBodiesAreRefused) {
  EXPECT_EQ(parsed("--bx\r\n"), "error: something follows a multipart boundary on its line");
  EXPECT_EQ(parsed("--b\r\nX\r\n\r\n"), "error: a part has a header line without a colon");
  EXPECT_EQ(parsed("--b\r\nA: b\r\n\r\n"), "error: a part has no Content-Disposition");
  EXPECT_EQ(parsed("--b\r\n" + std::string(kHead) + "\r\n" + std::string(kHead) + "\r\n\r\n"),
            "error: a part has two Content-Disposition lines");
  EXPECT_EQ(
      parsed("--b\r\n" + std::string(kHead) + "\r\nContent-Transfer-Encoding: base64\r\n\r\n"),
      "error: a part is encoded; only plain bytes are allowed");
}

TEST(Multipart, HeadAndBoundaryLineAreBounded) {
  EXPECT_EQ(read_all("--b\r\nA: " + std::string(9000, 'x'), 1000),
            "error: the header lines of a part are longer than 8192 bytes");
  EXPECT_EQ(read_all("--b" + std::string(9000, ' '), 1000),
            "error: a multipart boundary's line is too long");
}

TEST(Multipart, PartsAreCounted) {
  std::string body;
  for (std::size_t i = 0; i <= MultipartReader::kMaxParts; ++i) body += part(kHead, "");
  const std::string text = read_all(body, 4096);
  EXPECT_TRUE(text.ends_with("error: more than 4096 parts")) << text.size();
}

TEST(Multipart, NothingIsKeptOfAPreamble) {
  MultipartReader reader("b");
  for (int i = 0; i < 100; ++i) {
    reader.feed(std::string(10'000, 'x'));
    EXPECT_EQ(reader.next()->kind, Kind::kMore);
  }
}

TEST(MultipartBoundary, IsFoundInTheContentType) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc").value(), "abc");
  EXPECT_EQ(multipart_boundary("Multipart/Form-Data; charset=x; Boundary=\"a b\"").value(), "a b");
}

TEST(MultipartBoundary, OtherTypesAndLengthsAreRefused) {
  EXPECT_EQ(multipart_boundary("text/plain; boundary=a").error().message(),
            "the content is 'text/plain', not multipart/form-data");
  const char* const kNeeded = "multipart/form-data needs a boundary of 1 to 70 characters";
  EXPECT_EQ(multipart_boundary("multipart/form-data").error().message(), kNeeded);
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=\"\"").error().message(), kNeeded);
  EXPECT_EQ(
      multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'b')).error().message(),
      kNeeded);
}

TEST(MultipartDisposition, NamesAreTakenAsTheyStand) {
  const MultipartPart part =
      parse_disposition(R"( form-data; name="f"; filename="a\"b\\c;\d %22" )").value();
  EXPECT_EQ(part.name, "f");
  EXPECT_EQ(part.file_name, R"(a"b\c;\d %22)");
  EXPECT_EQ(
      parse_disposition("form-data; name=f; filename*=utf-8'en'%e2%82%ac%20x").value().file_name,
      "€ x");
}

TEST(MultipartDisposition, MalformedOnesAreRefused) {
  for (const char* value :
       {"attachment; name=a", "form-data", "form-data; name", "form-data; =x",
        "form-data; name=\"a", "form-data; name=\"a\"b", "form-data; name=a; name=b",
        "form-data; a;b=c", "form-data; name=a; filename*=x",
        "form-data; name=a; filename*=latin1''x", "form-data; name=a; filename*=utf-8''%4"})
    EXPECT_FALSE(parse_disposition(value).has_value()) << value;
  EXPECT_TRUE(parse_disposition("form-data; name=a;").has_value());
}

}  // namespace
}  // namespace caisson::api::e2b
