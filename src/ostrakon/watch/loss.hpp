// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace ostrakon::watch {

/// How many frames one end of a connection has sent so far, each in a packet, and how many packets
/// its system has sent again, because they were not confirmed.
struct Packets {
  std::uint32_t sent = 0, again = 0;
};

/// Which share of the packets of one end was sent again lately.
class LossMeter {
 public:
  /// Takes the counts as they were at `now`, in seconds. What was sent again before the first ones
  /// were taken does not count: ranks that all connect at once lose packets by that alone.
  void take(const Packets& packets, double now);
  /// The share over the last 10 to 20 seconds; 0 where it is so small that it may be chance.
  double share() const;
  /// Whether there was such a share in the last three minutes: pauses of TCP, which double with
  /// each loss, outlast their cause.
  bool has_effect(double now) const;

 private:
  Packets before_, between_, last_;
  bool has_begun_ = false;  // some counts were taken
  double between_at_ = 0.0, lossy_at_ = -1e9;
};

/// What gets lost between this rank's host and that of another rank, in both directions.
class LinkMeter {
 public:
  /// Takes what this end and the other one have sent so far.
  void take(const Packets& own, const Packets& others, double now) {
    own_.take(own, now);
    others_.take(others, now);
  }
  /// The larger of both shares.
  double share() const { return std::max(own_.share(), others_.share()); }
  bool has_effect(double now) const { return own_.has_effect(now) || others_.has_effect(now); }

 private:
  LossMeter own_, others_;
};

}  // namespace ostrakon::watch
