// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/messages.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/train/programs.hpp>
#include <vector>

namespace ostrakon::train {

/// The communicators of a rank: one for each stream that communicates and each span of ranks, as
/// streams may communicate at the same time.
class Channels {
 public:
  /// For all spans over which the programs, or levels of their grid, communicate. `rank`: this
  /// rank's number in plans. Collective over the mesh, in the same order on all ranks.
  Channels(const Programs& programs, int rank, mesh::Mesh& mesh);

  /// Throws std::logic_error for a span that no program has.
  comm::Communicator& of(plan::Stream stream, const plan::Span& span) const;
  comm::Communicator& of(const plan::Action& action) const {
    return of(action.stream, action.span);
  }

  /// What stages send each other: ranks are stages.
  comm::Messages& messages() const { return *messages_; }

  /// Bytes that this rank has sent over a span, on all streams; over {pipeline, stages}: in
  /// messages.
  std::int64_t bytes_sent(const plan::Span& span) const;
  /// Bytes that this rank has not sent over a span, as no rank had anything for the others.
  std::int64_t bytes_left_out(const plan::Span& span) const;
  void leave_out(const plan::Action& action, std::int64_t bytes) const;
  /// See comm::Communicator::slow_down.
  void slow_down(plan::Stream stream, double seconds_per_byte);

 private:
  struct Channel {
    plan::Span span;
    std::unique_ptr<comm::Communicator> communicator;
    mutable std::int64_t bytes_left_out = 0;  // written by its stream, as those that are sent
  };
  const Channel& channel_of(plan::Stream stream, const plan::Span& span) const;

  std::map<plan::Stream, std::vector<Channel>> channels_;
  std::unique_ptr<comm::Messages> messages_;
};

}  // namespace ostrakon::train
