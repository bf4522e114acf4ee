// What is said between a caisson-gateway and whoever starts it (the launcher of a sandbox that
// outlives its maker, or the maker itself), over a SOCK_SEQPACKET pair whose end is the gateway's
// descriptor kGatewayControlFd.
//
// To the gateway, in this order: the sandbox's id, with the descriptors of the policy as JSON (a
// file, read from its start) and perhaps of a file for its records; kGatewaySecret with the value
// of each of the policy's secrets, in its order, each of which is answered; kGatewayServe, with the
// sockets; any number of kGatewayUpdate, each with a policy as JSON behind it. When this side is
// shut down the gateway ends. From the gateway: a kind and perhaps a text.
#pragma once

#include <cstddef>

namespace caisson::launcher {

inline constexpr int kGatewayControlFd = 3;
// Its second argument, behind who started it: every policy's floor is fixed.
inline constexpr const char* kGatewayFixedFloor = "fixed-floor";

inline constexpr char kGatewaySecret = 'V';
inline constexpr char kGatewayServe = 'S';  // with tcp, dns_udp and dns_tcp
inline constexpr std::size_t kGatewaySockets = 3;
inline constexpr char kGatewayUpdate = 'U';

inline constexpr char kGatewayPlaceholder = 'P';  // and what stands for the secret inside
// Where the policy opens TLS, before it serves: the certificate that the sandbox has to trust.
inline constexpr char kGatewayAuthority = 'C';
inline constexpr char kGatewayReady = 'R';    // it serves
inline constexpr char kGatewayFailed = 'F';   // and why it cannot
inline constexpr char kGatewayUpdated = 'U';  // the policy holds
inline constexpr char kGatewayRefused = 'X';  // and what is wrong with it; the one before holds
// And the last record of the audit, a line break and the report; then it ends.
inline constexpr char kGatewayDone = 'D';

// Of a policy that is changed while the sandbox lives: what fits into one frame of its client.
inline constexpr std::size_t kMostLivePolicy = 60 * 1024;
// Any message of the two.
inline constexpr std::size_t kMostGatewayMessage = 64 * 1024 + 256;

}  // namespace caisson::launcher
