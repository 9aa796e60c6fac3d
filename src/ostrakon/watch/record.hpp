// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <ostrakon/base/names.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <type_traits>

namespace ostrakon::watch {

/// What a thread is occupied with, besides the actions of plans.
enum class Occupation : std::uint8_t {
  none,
  starting,
  loading,
  between_steps,
  validating,
  saving,
  awaiting_writer,  ///< the thread that writes its part of a checkpoint
  writing_checkpoint,
  writing_weights,
  ending
};

/// All that is known of an occupation.
struct OccupationTraits {
  Occupation value;
  const char* name;  ///< in messages, after "it is"
  double seconds;    ///< how long it may take where nothing was measured; 0: no limit
  bool has_notice;   ///< whether it is usually short, so that a long one is worth a notice
};
constexpr OccupationTraits occupation_table[] = {
    {Occupation::none, "idle", 0.0, false},
    {Occupation::starting, "starting", 600.0, false},
    {Occupation::loading, "reading parameters or a checkpoint", 600.0, false},
    {Occupation::between_steps, "between two steps", 60.0, true},
    {Occupation::validating, "validating", 60.0, true},
    {Occupation::saving, "saving a checkpoint", 120.0, true},
    {Occupation::awaiting_writer, "waiting for its part of a checkpoint", 0.0, false},
    {Occupation::writing_checkpoint, "writing its part of a checkpoint", 120.0, true},
    {Occupation::writing_weights, "writing weights", 600.0, false},
    {Occupation::ending, "ending", 60.0, false}};
constexpr int occupations = static_cast<int>(std::size(occupation_table));
constexpr const OccupationTraits& traits(Occupation occupation) {
  return occupation_table[static_cast<int>(occupation)];
}

/// For whom a rank waits.
enum class Wait : std::uint8_t {
  nobody,  ///< it has work of its own
  span,    ///< ranks of a collective of the plan
  all,     ///< all ranks, in a sum of the plan
  peer,    ///< one rank, which sends or receives a message
  anyone,  ///< ranks that have not come as far, in a call of MPI outside the plan
  device   ///< its device, which may wait for others
};

/// What a rank is doing: what is sent to the rank that judges. Of all actions that a rank has begun
/// and not ended, the one named is the first in the plan: it waits for no other of this rank.
struct Record {
  std::int32_t rank = 0;  ///< in the world
  Wait wait = Wait::nobody;
  Occupation occupation = Occupation::none;  ///< of the thread that drives the run
  Occupation background = Occupation::none;  ///< of the thread that writes checkpoints
  plan::Purpose purpose = plan::Purpose::train;
  plan::Stream stream = plan::Stream::compute;  ///< stream of the named action
  bool in_run = false;                          ///< whether a plan is running
  bool reads_data = false;                      ///< whether the named action does
  std::int64_t step = 0;
  std::int64_t runs = 0;  ///< how many runs of plans have begun, the same on ranks that are in step
  /// The last action of each stream that has begun in this run; -1: none.
  std::array<std::int32_t, plan::streams> begun{};
  std::int32_t global_sums = 0;  ///< how many sums over all ranks have begun in this run
  std::int32_t action = -1;      ///< the named action; -1: none
  // Ranks that it waits for, by their numbers in plans: `members`, each `stride` after the one
  // before; or one peer.
  std::int32_t first = 0, members = 0, stride = 1;
  std::int32_t peer = -1;
  float seconds = 0.0F,
        limit = 0.0F;  ///< since when it does this, and how long it may; 0: no limit
  float background_seconds = 0.0F, background_limit = 0.0F;
  float notice = 0.0F, background_notice = 0.0F;  ///< the same for a notice; 0: none
  /// The last round of the rank that judges, in its own record, or that this rank had heard of.
  std::int32_t round = 0;
  /// Packets that its connection to the rank that judges has sent so far, and those sent again.
  std::uint32_t sent = 0, sent_again = 0;
  char what[96] = {};  ///< the named action; empty: none
  char call[24] = {};  ///< the call of MPI that it waits in; empty: none
};
static_assert(std::is_trivially_copyable_v<Record>, "records are sent as bytes");

}  // namespace ostrakon::watch
