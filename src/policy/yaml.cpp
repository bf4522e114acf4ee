// The only unit that sees yaml-cpp.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <istream>
#include <optional>
#include <streambuf>

#include "base/encoding.h"
#include "policy/complain.h"
#include "policy/node.h"

namespace caisson::policy {
namespace {

std::string place_of(const YAML::Mark& mark) {
  return "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1);
}

Error bad_document(std::string_view what, std::string_view found) {
  return wrong(what, found, "one YAML mapping in UTF-8, without anchors, aliases and tags");
}

// Ends yaml-cpp's parse from inside an event; caught in parse_yaml_tree().
struct Refusal {
  std::string found;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) refuse("a second document", mark);
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    begin_value(mark, "", anchor);
    Node node;
    node.line = mark.line + 1;
    place(std::move(node), mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse("an alias", mark); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    begin_value(mark, tag, anchor);
    Node node;
    node.kind = tag == "!" ? Node::Kind::kText : Node::Kind::kPlain;
    node.text = value;
    node.line = mark.line + 1;
    place(std::move(node), mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    // Of a mapping: the key that waits for its value.
    std::optional<std::string> key;
  };

  [[noreturn]] static void refuse(std::string_view what, const YAML::Mark& mark) {
    std::string found(what);
    found += " at ";
    found += place_of(mark);
    throw Refusal{std::move(found)};
  }

  void begin_value(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse("an anchor", mark);
    if (!tag.empty() && tag != "?" && tag != "!") refuse("the tag " + quote(tag), mark);
    if (++nodes_ > kMaxDocumentNodes) {
      refuse("more than " + std::to_string(kMaxDocumentNodes) + " values", mark);
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    begin_value(mark, tag, anchor);
    if (!frames_.empty() && frames_.back().node.kind == Node::Kind::kMap &&
        !frames_.back().key.has_value()) {
      refuse("a key that is no text", mark);
    }
    if (frames_.size() >= kMaxDocumentDepth) {
      refuse("nesting deeper than " + std::to_string(kMaxDocumentDepth) + " levels", mark);
    }
    Frame frame;
    frame.node.kind = kind;
    frame.node.line = mark.line + 1;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Node node = std::move(frames_.back().node);
    frames_.pop_back();
    place(std::move(node), YAML::Mark::null_mark());
  }

  void place(Node node, const YAML::Mark& mark) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == Node::Kind::kList) {
      frame.node.items.push_back(std::move(node));
    } else if (frame.key.has_value()) {
      frame.node.keys.push_back(std::move(*frame.key));
      frame.node.items.push_back(std::move(node));
      frame.key.reset();
    } else if (node.kind == Node::Kind::kPlain || node.kind == Node::Kind::kText) {
      frame.key = std::move(node.text);
    } else {
      refuse("a key that is no text", mark);
    }
  }

  std::vector<Frame> frames_;
  Node root_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

// A view as an input stream, without a copy.
class ViewBuffer final : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view view) {
    char* begin = const_cast<char*>(view.data());  // never written: there is no output side
    setg(begin, begin, begin + view.size());
  }
};

// What yaml-cpp would read in a way of its own: other encodings, and control characters, of which
// 0x04 silently ends its input.
Status check_bytes(std::string_view text, std::string_view what) {
  int line = 1;
  for (const char c : text.substr(0, utf8_prefix(text))) {
    if (c == '\n') ++line;
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7f) {
      return fail(bad_document(what, "a control character at line " + std::to_string(line)));
    }
  }
  if (!is_utf8(text)) {
    return fail(bad_document(what, "bytes that are not UTF-8 at line " + std::to_string(line)));
  }
  return {};
}

}  // namespace

Result<Node> parse_yaml_tree(std::string_view text, std::string_view what) {
  if (text.size() > kMaxDocumentBytes) {
    return fail(wrong(what, std::to_string(text.size()) + " bytes",
                      std::to_string(kMaxDocumentBytes) + " bytes at most"));
  }
  TRY(check_bytes(text, what));
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    TreeBuilder builder;
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take();
  } catch (const Refusal& refusal) {
    return fail(bad_document(what, refusal.found));
  } catch (const YAML::Exception& exception) {
    return fail(bad_document(
        what, "broken YAML at " + place_of(exception.mark) + " (" + exception.msg + ")"));
  }
}

}  // namespace caisson::policy
