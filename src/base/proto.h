// The framed, multiplexed protocol between a sandbox's guest, its supervisor and the supervisor's
// clients. docs/formats/guest-protocol.md is the written description; this header is the same in
// types. Everything that arrives is hostile input: a Decoder never allocates more than one bounded
// frame and never trusts a length.
//
// A connection carries frames. Each belongs to a stream; stream 0 is the connection itself. The
// side that opens a stream chooses its number (the client's are odd, the guest never opens one). A
// stream has up to three byte channels in each direction, each with its own credit: a sender may
// send only as many DATA bytes as it was granted, so a full pipe on one stream never delays another
// stream or a signal. Frames without DATA need no credit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::proto {

inline constexpr std::uint16_t kVersion = 1;     // what we speak
inline constexpr std::uint16_t kMinVersion = 1;  // the oldest that we still understand: one back
inline constexpr std::uint32_t kHeaderSize = 12;
inline constexpr std::uint32_t kMaxPayload = 64 * 1024;
// Of an OPEN, which goes in pieces where it is longer than one payload: what Linux takes of
// arguments and environment (2 MiB, each string 128 KiB), and what frames them.
inline constexpr std::uint32_t kMaxOpen = 5 * 512 * 1024;
inline constexpr std::uint32_t kMaxStreams = 256;            // open at once on one connection
inline constexpr std::uint32_t kInitialCredit = 256 * 1024;  // bytes per channel, each direction

enum class FrameType : std::uint8_t {
  kHello = 1,    // stream 0, first frame of each side: kHello* fields
  kOpen = 2,     // opens a stream: Kind + fields
  kData = 3,     // channel + bytes
  kCredit = 4,   // channel + u32: the receiver may take that many bytes more
  kFinish = 5,   // channel: the sender will send no more bytes on it
  kEvent = 6,    // something happened on the stream: fields
  kControl = 7,  // asks something of the stream (signal, resize): fields
  kClose = 8,    // the stream is over; last frame of the sender on it: fields
};

enum class Kind : std::uint8_t {
  kExec = 1,     // run a command
  kFile = 2,     // one file operation, or an upload or download
  kWatch = 3,    // file system events below a path
  kDial = 4,     // a connection to a port inside (127.0.0.1 included), or to a unix socket
  kMetrics = 5,  // one sample of the sandbox's own counters
  kControl = 6,  // about the guest itself: shut down, set the time, list processes
};

enum class Channel : std::uint8_t { kIn = 0, kOut = 1, kErr = 2 };

struct Header {
  std::uint32_t length = 0;  // payload bytes, at most kMaxPayload
  std::uint32_t stream = 0;
  FrameType type = FrameType::kHello;
  std::uint8_t detail = 0;  // kOpen: Kind; kData, kCredit, kFinish: Channel; else 0
  std::uint16_t reserved = 0;
};

struct Frame {
  Header header;
  std::string payload;
};

// Little-endian, fixed: u32 length, u32 stream, u8 type, u8 detail, u16 reserved (zero).
// encode_frame(): of an OPEN whose payload is longer than kMaxPayload several frames (kWhole).
void encode_header(const Header& header, std::span<std::uint8_t, kHeaderSize> out);
std::string encode_frame(std::uint32_t stream, FrameType type, std::uint8_t detail,
                         std::string_view payload);
// The size of the frame that `frames` begins with; `frames` are encode_frame()'s, one behind the
// other, and not empty.
std::size_t encoded_size(std::string_view frames);
// The CREDIT frame that grants `bytes` more, and its payload read back (never zero).
std::string encode_credit(std::uint32_t stream, Channel channel, std::uint32_t bytes);
Result<std::uint32_t> parse_credit(std::string_view payload);

// The version that two sides speak: the lower of what each speaks, if both still understand it.
// Error: unimplemented where they have none in common.
Result<std::uint16_t> common_version(std::uint64_t peer_version, std::uint64_t peer_min_version);
// The payload of our HELLO, and the common version with whoever sent this one.
std::string hello_payload();
Result<std::uint16_t> check_hello(std::string_view payload);

// Takes bytes as they come and hands out whole frames, an OPEN that came in pieces as one. The
// first malformed byte is final: every later call fails with the same error. Holds no more than a
// frame and what was fed, and of an OPEN kMaxOpen.
class Decoder {
 public:
  void feed(std::string_view bytes);
  // The next whole frame, nullopt when more bytes are needed.
  Result<std::optional<Frame>> next();
  std::size_t buffered() const { return buffer_.size() - offset_; }

 private:
  Result<std::optional<Frame>> next_frame();
  Status add_piece(const Frame& frame);
  Error break_off(Error error);

  struct Pieces {
    Header header;
    std::size_t whole = 0;
    std::string payload;
  };
  std::optional<Pieces> pieces_;  // of an OPEN
  std::string buffer_;
  std::size_t offset_ = 0;
  std::optional<Error> broken_;
};

// Field tags of OPEN, EVENT, CONTROL and CLOSE payloads. A payload is a list of fields, each u16
// tag, u32 length, bytes. A reader ignores tags that it does not know unless their top bit is set
// (kCritical): then it refuses the frame with "unimplemented". Repeated tags form a list in order.
inline constexpr std::uint16_t kCritical = 0x8000;
enum class Tag : std::uint16_t {
  // A long OPEN: its first frame has kWhole (u32: bytes of its payload) and the first piece;
  // CONTROL
  // frames of the same stream follow, and nothing between, with a piece each. Critical: who does
  // not
  // know them would take the stream for one without fields.
  kWhole = kCritical | 33,
  kPiece = kCritical | 34,
  // hello
  kVersion = 1,
  kMinVersion = 2,
  kFeatures = 3,
  // exec: OPEN
  kArg = 16,  // repeated
  kEnv = 17,  // repeated, "K=V"
  kCwd = 18,
  kUser = 19,
  kPty = 20,     // u16 columns, u16 rows: a terminal instead of pipes
  kRlimit = 21,  // repeated: u32 resource, u64 soft, u64 hard
  kCgroup = 22,  // u8 count of descriptors that came with this frame: `tasks` files to enter
  // u8 1: one more came after those, the v2 group's directory to be born in. Critical: who does not
  // know it would run the command without its limits.
  kBirthCgroup = kCritical | 32,
  kSyscallProfile = 23,  // u8
  kWantListener = 24,    // u8: send the seccomp listener with the kStarted event
  kPrivileges = 25,      // u8: 0 none, 1 sudo; of a file's OPEN: as uid 0, with sudo's rights
  kOutputLimit = 26,     // u64
  kTimeLimitMs = 27,
  kCpuLimitMs = 28,  // u64
  kStdin = 29,       // u8: 1 when the client will send input; 0: /dev/null
  kNoSetid = 31,     // u8: refuse set-id modes (where a grant is writable); of a file's OPEN too
  kDefaultEnv = 30,  // repeated: an image's variables, weaker than kEnv
  // exec: CONTROL
  kSignal = 40,  // u32
  kResize = 41,  // u16 columns, u16 rows
  // exec: EVENT and CLOSE
  kStarted = 48,     // u32 pid inside
  kExitCode = 49,    // u32
  kExitSignal = 50,  // u32
  kCoreDumped = 51,  // u8
  kUserMicros = 52,
  kSystemMicros = 53,
  kPeakRss = 54,       // u64, of the command and its children
  kSigsysNumber = 55,  // u32: the system call of a SIGSYS that the kernel raised
  kErrorCode = 56,     // u32 Code
  kErrorMessage = 57,
  kErrorErrno = 58,
  kListener = 59,      // u8 1: the seccomp listener came with this EVENT frame
  kErrorSubject = 60,  // u8 ErrorSubject: what a command that did not start failed at
  // file: OPEN and EVENT (one operation a stream)
  kOperation = 64,  // u8 FileOperation
  kPath = 65,
  kTarget = 66,
  kMode = 67,
  kUid = 68,
  kGid = 69,
  kSize = 70,
  kMtimeNs = 71,
  kFileType = 72,
  kInode = 73,
  kOffset = 74,
  kRecursive = 75,
  kName = 76,
  kLinkCount = 77,
  kFollow = 78,
  kExclusive = 79,
  kUserName = 80,
  kGroupName = 81,
  kXattrName = 82,
  kXattrValue = 83,
  kAppend = 84,  // u8
  kAtomic = 85,  // u8: write beside the file, then take its place
  kDepth = 86,   // u32: levels of a listing
  // u8 1: entries come with names of owners, kResolved and kTargetType of links, and the extended
  // attributes that begin with kXattrPrefix; of a watch, with all that stat knows
  kWantDetails = 87,
  kResolved = 88,     // where a link leads in the end: absolute, without links
  kTargetType = 89,   // u8 FileType of what is there
  kXattrPrefix = 90,  // of names of extended attributes
  kSource = 91,       // repeated: paths to compose from
  kHome = 92,         // of a user
  kShell = 93,
  // watch
  kWatchEvent = 96,          // u8
  kAllowNetworkMounts = 97,  // u8 1: watch also where others may change files unnoticed
  kTargetName = 98,          // of a rename: kTarget below the directory that is watched
  // dial
  kPort = 112,
  kAddress = 113,
  // metrics and control
  kMetricName = 128,
  kMetricValue = 129,
  kControlOperation = 130,  // u8 ControlOperation
  kPid = 131,
  kCommandLine = 132,
  kTimeNs = 133,
  kParentPid = 134,
  // supervisor to client only (see launcher/): the verdict of an exec
  kVerdict = 160,
  kUsage = 161,
  kHeld = 162,
  kRefusal = 163,
  kLimitHit = 164,
  kVerdictCause = 165,   // one word that narrows the verdict; base/verdict.h
  kVerdictDetail = 166,  // a sentence for people
  // client to supervisor only, exec OPEN without kArg: join the sandbox's main command, or the kept
  // one that kCommand names. u8: 0 sends what is kept of its output and closes, 1 also what comes
  // until it ends, 2 only what comes from now on. The CLOSE of a command that has ended carries its
  // verdict, that of one that still runs no kVerdict. DATA needs credit, as everywhere.
  kAttach = 167,
  kMissed = 168,  // EVENT of an attached stream: u64 bytes that were kept no more when it came on
  // Between a client and the supervisor: docs/formats/guest-protocol.md, "The supervisor's
  // clients".
  kRequest = 169,     // CONTROL of stream 0 and the EVENT that answers: u32, the client's choice
  kDeadlineMs = 170,  // u64, Unix time; 0: none
  kKeep = 171,  // exec OPEN: u8 1, the command survives its client; 2, and the sandbox ends with it
  kLabel = 172,       // exec OPEN with kKeep: at most kMaxLabel bytes, opaque
  kCommand = 173,     // u32: the supervisor's number of a kept command
  kKeepOutput = 174,  // exec OPEN with kKeep: u32, bytes of output that are kept
  kStartedMs = 175,   // u64, Unix time
  // The sandbox's counters
  kMemoryNow = 176,
  kMemoryPeak = 177,
  kPidsNow = 178,
  kPidsPeak = 179,
  kDiskBytes = 180,
  kDiskInodes = 181,
  kFrozen = 182,    // u8
  kHandouts = 183,  // what kHold hands out, as wall/handouts.h has it
  // The commands that have ended, and what the sandbox's limits are
  kProgram = 200,        // the program's name as it was given, at most kMaxProgram bytes
  kEndedMs = 201,        // u64, Unix time
  kCommandsEnded = 203,  // u64: how many commands have ended since the sandbox was made
  kLimitValues = 202,    // a u64 for each limit, little-endian, in Limit's order; 0: unlimited
  kNetworkPolicy = 204,  // JSON (policy/network_document.h)
};
inline constexpr std::size_t kMaxLabel = 8 * 1024;
inline constexpr std::size_t kMaxProgram = 256;

enum class FileOperation : std::uint8_t {
  kStat = 1,
  kRead = 2,
  kWrite = 3,
  kList = 4,
  kMakeDir = 5,
  kRemove = 6,
  kRename = 7,
  kSymlink = 8,
  kReadlink = 9,
  kChmod = 10,
  kChown = 11,
  kSetTimes = 12,
  kExists = 13,
  kGetXattr = 14,
  kSetXattr = 15,
  kCompose = 16,
  kLookupUser = 17,
};

// Values of kErrorSubject.
enum class ErrorSubject : std::uint8_t {
  kUser = 1,       // unknown, or not well-formed
  kDirectory = 2,  // the working directory
  kProgram = 3,
};

// Values of kFileType.
enum class FileType : std::uint8_t {
  kRegular = 1,
  kDirectory = 2,
  kSymlink = 3,
  kFifo = 4,
  kSocket = 5,
  kCharacterDevice = 6,
  kBlockDevice = 7,
};

// Values of kWatchEvent.
enum class WatchEvent : std::uint8_t {
  kArmed = 0,  // the watch is in place; what happens from now on is told
  kCreated = 1,
  kModified = 2,
  kRemoved = 3,
  kRenamed = 4,  // kPath to kTarget; without a kTarget, to where nobody watches
  kAttributes = 5,
  kOverflow = 6,  // something was missed: look again
};

enum class ControlOperation : std::uint8_t {
  kShutdown = 1,
  kPing = 2,
  kSetTime = 3,
  kListProcesses = 4,
  kCloseConnections = 5,
  kReseed = 6,
  // Every process of every command is killed, and the answer is that none is left.
  kEndProcesses = 7,
  // On stream 0 from a client to the supervisor; the guest never sees them. Each is answered by an
  // EVENT on stream 0 with the same kControlOperation and kRequest, kListCommands by one for each
  // command, which has kCommand, and a last one, which has not; kListVerdicts too.
  kSetDeadline = 16,
  kFreeze = 17,
  kThaw = 18,
  kUsage = 19,
  kListCommands = 20,
  // The one without an answer: whoever made a kept sandbox is done, and may go from now on.
  kSettle = 21,
  // Everything inside stands still for whoever asks, and what others open waits, until that one
  // says kRelease or leaves. The answer comes with two descriptors: the layer of changes, and the
  // record of what set-up made in it.
  kHold = 22,
  kRelease = 23,
  // Nothing of what runs inside outlives it. With kFrozen 1 the sandbox is frozen at the end.
  kReboot = 24,
  kLimits = 32,
  kListVerdicts = 33,
  // From now on the gateway of a sandbox that outlives its maker goes by kNetworkPolicy.
  kSetNetwork = 34,
};

// Builds a field list.
class Fields {
 public:
  Fields& put(Tag tag, std::string_view value);
  Fields& put_u8(Tag tag, std::uint8_t value);
  Fields& put_u32(Tag tag, std::uint32_t value);
  Fields& put_u64(Tag tag, std::uint64_t value);
  // kErrorCode, kErrorMessage and, where a system call failed, kErrorErrno.
  Fields& put_error(const Error& error);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A parsed field list; views into the payload that was given, which must outlive it.
class FieldReader {
 public:
  // kIgnore is for looking at a frame that is going to be refused.
  enum class Critical : std::uint8_t { kRefuse, kIgnore };
  static Result<FieldReader> parse(std::string_view payload, Critical critical = Critical::kRefuse);
  bool has(Tag tag) const;
  // The first value of that tag, or an error that names the tag where it is missing or of wrong
  // size.
  Result<std::string_view> text(Tag tag) const;
  Result<std::uint64_t> number(Tag tag) const;  // of 1, 2, 4 or 8 bytes
  std::optional<std::uint64_t> number_or_none(Tag tag) const;
  std::vector<std::string_view> all(Tag tag) const;
  // The error of a CLOSE frame (see Fields::put_error), nullopt where it tells of none.
  std::optional<Error> error() const;

 private:
  struct Field {
    std::uint16_t tag;
    std::string_view value;
  };
  std::vector<Field> fields_;
};

}  // namespace caisson::proto
