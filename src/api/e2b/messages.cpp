#include "api/e2b/messages.h"

namespace caisson::api::e2b {

namespace {

using enum WireType;
constexpr WireField::Shape kRepeated = WireField::Shape::kRepeated;
constexpr WireField::Shape kOne = WireField::Shape::kOne;

consteval WireField message_field(std::string_view name, std::uint32_t number,
                                  const WireMessage& message, WireField::Shape shape = kOne) {
  return {name, number, kMessage, shape, &message};
}

constexpr WireMessage kNothing = {};

// ---- process.Process

constexpr WireField kConfigFields[] = {
    {"cmd", 1}, {"args", 2, kString, kRepeated}, {"envs", 3, kStringMap}, {"cwd", 4}};
constexpr WireMessage kConfig = {kConfigFields};

constexpr WireField kSizeFields[] = {{"cols", 1, kUint32}, {"rows", 2, kUint32}};
constexpr WireMessage kSize = {kSizeFields};
constexpr WireField kPtyFields[] = {message_field("size", 1, kSize)};
constexpr WireMessage kPty = {kPtyFields};

constexpr WireField kSelectorFields[] = {{"pid", 1, kUint32}, {"tag", 2}};
constexpr WireMessage kSelector = {kSelectorFields};
constexpr WireField kSelectedFields[] = {message_field("process", 1, kSelector)};

constexpr WireField kStartFields[] = {message_field("process", 1, kConfig),
                                      message_field("pty", 2, kPty),
                                      {"tag", 3},
                                      {"stdin", 4, kBool}};

constexpr WireField kStartEventFields[] = {{"pid", 1, kUint32}};
constexpr WireMessage kStartEvent = {kStartEventFields};
constexpr WireField kDataEventFields[] = {
    {"stdout", 1, kBytes}, {"stderr", 2, kBytes}, {"pty", 3, kBytes}};
constexpr WireMessage kDataEvent = {kDataEventFields};
constexpr WireField kEndEventFields[] = {
    {"exitCode", 1, kSint32}, {"exited", 2, kBool}, {"status", 3}, {"error", 4}};
constexpr WireMessage kEndEvent = {kEndEventFields};
constexpr WireField kEventFields[] = {
    message_field("start", 1, kStartEvent), message_field("data", 2, kDataEvent),
    message_field("end", 3, kEndEvent), message_field("keepalive", 4, kNothing)};
constexpr WireMessage kEvent = {kEventFields};
constexpr WireField kProcessStreamFields[] = {message_field("event", 1, kEvent)};

constexpr WireField kInfoFields[] = {
    message_field("config", 1, kConfig), {"pid", 2, kUint32}, {"tag", 3}};
constexpr WireMessage kInfo = {kInfoFields};
constexpr WireField kListFields[] = {message_field("processes", 1, kInfo, kRepeated)};

constexpr WireField kUpdateFields[] = {message_field("process", 1, kSelector),
                                       message_field("pty", 2, kPty)};

constexpr WireField kInputFields[] = {{"stdin", 1, kBytes}, {"pty", 2, kBytes}};
constexpr WireMessage kInput = {kInputFields};
constexpr WireField kSendInputFields[] = {message_field("process", 1, kSelector),
                                          message_field("input", 2, kInput)};

constexpr WireField kStreamStartFields[] = {message_field("process", 1, kSelector)};
constexpr WireMessage kStreamStart = {kStreamStartFields};
constexpr WireField kStreamDataFields[] = {message_field("input", 2, kInput)};
constexpr WireMessage kStreamData = {kStreamDataFields};
constexpr WireField kStreamInputFields[] = {message_field("start", 1, kStreamStart),
                                            message_field("data", 2, kStreamData),
                                            message_field("keepalive", 3, kNothing)};

constexpr WireEnumerator kSignals[] = {
    {"SIGNAL_UNSPECIFIED", 0}, {"SIGNAL_SIGTERM", 15}, {"SIGNAL_SIGKILL", 9}};
constexpr WireField kSendSignalFields[] = {message_field("process", 1, kSelector),
                                           {"signal", 2, kEnum, kOne, nullptr, kSignals}};

// ---- filesystem.Filesystem

constexpr WireEnumerator kFileTypes[] = {{"FILE_TYPE_UNSPECIFIED", 0},
                                         {"FILE_TYPE_FILE", 1},
                                         {"FILE_TYPE_DIRECTORY", 2},
                                         {"FILE_TYPE_SYMLINK", 3}};
constexpr WireEnumerator kEventTypes[] = {{"EVENT_TYPE_UNSPECIFIED", 0}, {"EVENT_TYPE_CREATE", 1},
                                          {"EVENT_TYPE_WRITE", 2},       {"EVENT_TYPE_REMOVE", 3},
                                          {"EVENT_TYPE_RENAME", 4},      {"EVENT_TYPE_CHMOD", 5}};

constexpr WireField kEntryFields[] = {{"name", 1},
                                      {"type", 2, kEnum, kOne, nullptr, kFileTypes},
                                      {"path", 3},
                                      {"size", 4, kInt64},
                                      {"mode", 5, kUint32},
                                      {"permissions", 6},
                                      {"owner", 7},
                                      {"group", 8},
                                      {"modifiedTime", 9, kTimestamp},
                                      {"symlinkTarget", 10},
                                      {"metadata", 11, kStringMap}};
constexpr WireMessage kEntry = {kEntryFields};

constexpr WireField kPathFields[] = {{"path", 1}};
constexpr WireField kMoveFields[] = {{"source", 1}, {"destination", 2}};
constexpr WireField kEntryResponseFields[] = {message_field("entry", 1, kEntry)};
constexpr WireField kListDirFields[] = {{"path", 1}, {"depth", 2, kUint32}};
constexpr WireField kEntriesFields[] = {message_field("entries", 1, kEntry, kRepeated)};
constexpr WireField kWatchFields[] = {{"path", 1},
                                      {"recursive", 2, kBool},
                                      {"includeEntry", 3, kBool},
                                      {"allowNetworkMounts", 4, kBool}};
constexpr WireField kFileEventFields[] = {
    {"name", 1}, {"type", 2, kEnum, kOne, nullptr, kEventTypes}, message_field("entry", 3, kEntry)};
constexpr WireMessage kFileEvent = {kFileEventFields};
constexpr WireField kWatchStreamFields[] = {message_field("start", 1, kNothing),
                                            message_field("filesystem", 2, kFileEvent),
                                            message_field("keepalive", 3, kNothing)};
constexpr WireField kWatcherIdFields[] = {{"watcherId", 1}};
constexpr WireField kWatcherEventsFields[] = {message_field("events", 1, kFileEvent, kRepeated)};

}  // namespace

constexpr WireMessage kProcessConfig = kConfig;
constexpr WireMessage kStartRequest = {kStartFields};
constexpr WireMessage kConnectRequest = {kSelectedFields};
constexpr WireMessage kProcessStream = {kProcessStreamFields};
constexpr WireMessage kListResponse = {kListFields};
constexpr WireMessage kUpdateRequest = {kUpdateFields};
constexpr WireMessage kSendInputRequest = {kSendInputFields};
constexpr WireMessage kStreamInputRequest = {kStreamInputFields};
constexpr WireMessage kSendSignalRequest = {kSendSignalFields};
constexpr WireMessage kCloseStdinRequest = {kSelectedFields};
constexpr WireMessage kEntryInfo = kEntry;
constexpr WireMessage kPathRequest = {kPathFields};
constexpr WireMessage kMoveRequest = {kMoveFields};
constexpr WireMessage kEntryResponse = {kEntryResponseFields};
constexpr WireMessage kListDirRequest = {kListDirFields};
constexpr WireMessage kListDirResponse = {kEntriesFields};
constexpr WireMessage kWatchRequest = {kWatchFields};
constexpr WireMessage kWatchStream = {kWatchStreamFields};
constexpr WireMessage kWatcherId = {kWatcherIdFields};
constexpr WireMessage kWatcherEvents = {kWatcherEventsFields};
constexpr WireMessage kEmpty = {};

}  // namespace caisson::api::e2b
