// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/messages.hpp>
#include <ostrakon/comm/nccl.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// How arrays in device memory are sent, if there is a device.
struct TransportOptions {
  comm::TransportKind transport = comm::TransportKind::mpi_staged;
  /// Whether streams of plans are streams of the device. Otherwise a stream that waits for a
  /// message would block all others.
  bool has_streams = false;
  /// Whether NCCL has one communicator for each group of ranks, not for each stream.
  bool single_communicators = false;
  double timeout = 600.0;  ///< timeout of NCCL in seconds
  /// Called with a message about an operation that NCCL did not end in time, from its own thread.
  std::function<void(const std::string&)> stuck;
};

/// The communicators of a rank: one for each stream that communicates and each span of ranks, as
/// streams may communicate at the same time.
class Channels {
 public:
  /// Makes communicators for all spans over which the programs, or levels of their grid,
  /// communicate. `rank`: this rank's number in plans. `shared`: the memory that has all of a
  /// rank's buffers, if plans have windows. Collective over the mesh, in the same order on all
  /// ranks.
  Channels(const Programs& programs, int rank, mesh::Mesh& mesh,
           const TransportOptions& transports = {}, const std::vector<SharedMemory*>& shared = {});
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  /// Whether operations on a stream are done when the call returns, rather than later on a device.
  bool blocks(plan::Stream stream) const;

  /// Throws std::logic_error for a span that no program has.
  comm::Communicator& of(plan::Stream stream, const plan::Span& span) const;
  comm::Communicator& of(const plan::Action& action) const {
    return of(action.stream, action.span);
  }

  /// Handles a failure (Executor::on_failure): unless other ranks fail, too, their messages never
  /// come, and the job ends soon.
  void note_failure(const std::exception_ptr& failure) const;

  /// The messages between stages, in which ranks are stages.
  comm::Messages& messages() const { return *messages_; }

  /// Bytes that this rank has sent over a span, on all streams; for {pipeline, stages}: in
  /// messages.
  std::int64_t bytes_sent(const plan::Span& span) const;
  /// Bytes that this rank has not sent over a span, as no rank had any data for others.
  std::int64_t bytes_left_out(const plan::Span& span) const;
  void leave_out(const plan::Action& action, std::int64_t bytes) const;
  /// Slows down all collectives: see comm::Communicator::slow_down.
  void slow_down(double seconds_per_byte);

 private:
  struct Channel {
    plan::Span span;
    std::unique_ptr<comm::Communicator> communicator;
    mutable std::int64_t bytes_left_out = 0;  // written by its stream, like bytes sent
  };
  const Channel& channel_of(plan::Stream stream, const plan::Span& span) const;
  void carry(comm::Communicator& group, plan::Stream stream, const plan::Span& span,
             mesh::Mesh& mesh);
  void open_windows(const plan::Grid& grid, mesh::Mesh& mesh,
                    const std::vector<SharedMemory*>& shared);
  void carry_messages(const Programs& programs, mesh::Mesh& mesh);

  TransportOptions transports_;
#if defined(OSTRAKON_HAVE_NCCL)
  std::unique_ptr<comm::NcclWatchdog> watch_;
  std::unique_ptr<comm::NcclCommunicator> nccl_;  ///< communicator of all ranks of the stage
  /// A communicator for all streams of a group, and the order of its collectives.
  struct Shared {
    plan::Span span;
    std::shared_ptr<comm::NcclCommunicator> communicator;
    std::shared_ptr<comm::NcclOrder> order;
  };
  std::vector<Shared> shared_;
#endif
  std::map<plan::Stream, std::vector<Channel>> channels_;
  std::unique_ptr<comm::Messages> messages_;
};

}  // namespace ostrakon::train
