// What is said between a caisson-gateway and whoever starts it (the launcher of a sandbox that
// outlives its maker, or the maker itself), over a SOCK_SEQPACKET pair whose end is the gateway's
// descriptor kGatewayControlFd.
//
// To the gateway, in this order: the sandbox's id, with the descriptor of a file that has the
// policy's text, and behind the id and a line break a letter for each descriptor more: where its
// records go, the key of their chain (egress/audit_key.h), the head of it that is known, where
// heads are wanted, the sandbox's keys (egress/gateway/keys.h), its server
// (egress/served_domain.h), its alarm, a connection to its minter (minter_socket.h), and without
// keys where the certificate of its authority goes, for which whoever makes the sandbox waits.
// Without keys, kGatewaySecret with the value of each of the policy's secrets, in its order, each
// of which is answered. Then kGatewayServe, with the sockets, and any number of kGatewayUpdate,
// each with a policy's text behind it; or kGatewayKeep, which makes keys of what was given, and the
// gateway ends. When this side is shut down the gateway ends too. From the gateway: a kind and
// perhaps a text.
//
// The alarm is a SOCK_SEQPACKET socket whose other end the sandbox's launcher reads: a gateway that
// finds a request for which its sandbox is to end says a sentence there, lets nothing more through,
// and answers nobody. The launcher then sees to it that the sandbox ends, whatever its supervisor
// does.
//
// A policy's text is its JSON and, behind a line break, perhaps its sealed secrets
// (egress/secrets/sealed.h), which only a gateway with keys can have.
#pragma once

#include <cstddef>

namespace caisson::launcher {

inline constexpr int kGatewayControlFd = 3;
// Its second argument, behind who started it: every policy's floor is fixed.
inline constexpr const char* kGatewayFixedFloor = "fixed-floor";

inline constexpr char kGatewayRecords = 'a';
inline constexpr char kGatewayChain = 'c';
inline constexpr char kGatewayHead = 'h';
inline constexpr char kGatewayKeys = 'k';
inline constexpr char kGatewayServed = 's';
inline constexpr char kGatewayAlarm = 'z';
inline constexpr char kGatewayMinter = 'm';
// Of the sentence.
inline constexpr std::size_t kMostAlarm = 1024;
// One end of a SOCK_SEQPACKET pair, into which the certificate is said, as PEM, once.
inline constexpr char kGatewayCertificate = 'p';

inline constexpr char kGatewaySecret = 'V';
inline constexpr char kGatewayServe = 'S';  // with tcp, dns_udp and dns_tcp
inline constexpr std::size_t kGatewaySockets = 3;
inline constexpr char kGatewayUpdate = 'U';
inline constexpr char kGatewayKeep = 'K';

inline constexpr char kGatewayPlaceholder = 'P';  // and what stands for the secret inside
inline constexpr char kGatewayKept = 'K';         // and the sealed secrets; with the keys
inline constexpr char kGatewayReady = 'R';        // it serves
inline constexpr char kGatewayFailed = 'F';       // and why it cannot
inline constexpr char kGatewayUpdated = 'U';      // the policy holds
inline constexpr char kGatewayRefused = 'X';      // and what is wrong with it; the one before holds
// And kAuditHeadBytes: what is written of the audit, to be known whatever becomes of the file. Only
// where a head came with the start.
inline constexpr char kGatewaySealed = 'H';
// The number of a record, 8 bytes with the highest first, and its hash, 32.
inline constexpr std::size_t kAuditHeadBytes = 40;
// And the last record of the audit, a line break and the report; then it ends.
inline constexpr char kGatewayDone = 'D';

// Of a policy that is changed while the sandbox lives: what fits into one frame of its client.
inline constexpr std::size_t kMostLivePolicy = 60 * 1024;
// Any message of the two.
inline constexpr std::size_t kMostGatewayMessage = 64 * 1024 + 256;

}  // namespace caisson::launcher
