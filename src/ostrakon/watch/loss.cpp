// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/loss.hpp>

namespace ostrakon::watch {
namespace {

constexpr double window_seconds = 10.0, effect_seconds = 180.0;
constexpr std::uint32_t least_again = 3;
constexpr double least_share = 0.05;

}  // namespace

void LossMeter::take(const Packets& packets, double now) {
  // Another connection counts from 0 again.
  if (!has_begun_ || packets.sent < last_.sent || packets.again < last_.again)
    before_ = between_ = packets;
  has_begun_ = true;
  last_ = packets;
  if (share() > 0.0) lossy_at_ = now;
  if (now - between_at_ < window_seconds) return;
  before_ = between_;
  between_ = packets;
  between_at_ = now;
}

bool LossMeter::has_effect(double now) const { return now - lossy_at_ < effect_seconds; }

double LossMeter::share() const {
  const std::uint32_t sent = last_.sent - before_.sent, again = last_.again - before_.again;
  if (again < least_again || sent == 0) return 0.0;
  const double share = static_cast<double>(again) / sent;
  return share < least_share ? 0.0 : share;
}

}  // namespace ostrakon::watch
