// The messages of the data plane's two services as tables (wire.h): process.Process and
// filesystem.Filesystem of envd's public protocol. Names and numbers are the protocol's.
#pragma once

#include "api/e2b/wire.h"

namespace caisson::api::e2b {

// process.Process
extern const WireMessage kProcessConfig;
extern const WireMessage kStartRequest;
extern const WireMessage kConnectRequest;
extern const WireMessage kProcessStream;  // StartResponse and ConnectResponse
extern const WireMessage kListResponse;
extern const WireMessage kUpdateRequest;
extern const WireMessage kSendInputRequest;
extern const WireMessage kStreamInputRequest;
extern const WireMessage kSendSignalRequest;
extern const WireMessage kCloseStdinRequest;

// filesystem.Filesystem
extern const WireMessage kEntryInfo;
extern const WireMessage kPathRequest;  // Stat, MakeDir, Remove
extern const WireMessage kMoveRequest;
extern const WireMessage kEntryResponse;  // Stat, MakeDir, Move
extern const WireMessage kListDirRequest;
extern const WireMessage kListDirResponse;
extern const WireMessage kWatchRequest;  // WatchDir, CreateWatcher
extern const WireMessage kWatchStream;   // WatchDirResponse
extern const WireMessage kWatcherId;     // CreateWatcherResponse, Get…Request, Remove…Request
extern const WireMessage kWatcherEvents;

// A message without fields.
extern const WireMessage kEmpty;

// Enumerators, as they are in decoded messages.
enum class EntryType : std::uint8_t { kUnspecified = 0, kFile = 1, kDirectory = 2, kSymlink = 3 };
enum class EventType : std::uint8_t {
  kUnspecified = 0,
  kCreate = 1,
  kWrite = 2,
  kRemove = 3,
  kRename = 4,
  kChmod = 5,
};

}  // namespace caisson::api::e2b
