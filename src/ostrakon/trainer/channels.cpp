// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/channels.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/mpi_transport.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace ostrakon::train {
namespace {

using comm::Communicator;

/// Returns the spans over which a stream communicates, each once, in the same order on all ranks.
std::vector<plan::Span> spans_of(plan::Stream stream, const Programs& programs) {
  std::vector<plan::Span> spans;
  const auto add = [&](const plan::Span& span) {
    if (std::find(spans.begin(), spans.end(), span) == spans.end()) spans.push_back(span);
  };
  if (stream != plan::Stream::exchange) {
    for (plan::Axis axis : {plan::Axis::tensor, plan::Axis::shard, plan::Axis::replicate})
      for (const plan::Span& span : programs.train.plan.grid.levels(axis)) add(span);
    for (const plan::PlannedUnit& unit : programs.train.plan.units)
      for (const plan::Span& span : unit.layouts.gradient.divided) add(span);
  }
  for (const runtime::Program* program : programs.all())
    for (const plan::Action& action : program->plan.actions)
      if (action.stream == stream && plan::communicates(action.kind)) add(action.span);
  return spans;
}

/// Whether the buffer of a message, its first use, is in host memory.
[[maybe_unused]] bool is_on_host(const plan::StepPlan& plan, const plan::Action& action) {
  const int moved = (*action.uses.begin()).buffer;
  return plan.buffers[static_cast<std::size_t>(moved)].space == plan::Space::host;
}

/// Makes this rank's group of a span, which divides its axis into groups. Collective over the axis.
std::unique_ptr<Communicator> make_group(const plan::Span& span, const plan::Grid& grid, int rank,
                                         mesh::Mesh& mesh) {
  // Shard groups of the mesh include the tensor ranks.
  const bool is_of_replicas = span.axis == plan::Axis::replicate;
  const Communicator& axis = is_of_replicas ? mesh.replicate_group() : mesh.shard_group();
  if (span.ranks == axis.size())
    return std::make_unique<Communicator>(Communicator::duplicate(axis.mpi()));
  // Consecutive ranks of a group differ by the span's stride.
  const int apart = is_of_replicas ? span.stride : grid.stride(span);
  const int first = axis.rank() - grid.coordinate(rank, span) * apart;
  return std::make_unique<Communicator>(Communicator::split(axis.mpi(), first, axis.rank()));
}

}  // namespace

Channels::Channels(const Programs& programs, int rank, mesh::Mesh& mesh,
                   const TransportOptions& transports, const std::vector<SharedMemory*>& shared)
    : transports_(transports) {
#if defined(OSTRAKON_HAVE_NCCL)
  if (transports_.transport == comm::TransportKind::nccl && mesh.world().size() > 1) {
    // Gathers and reductions overlap if they have NCCL resources of their own.
    if (mesh.stage().size() > 1)
      nccl_ = std::make_unique<comm::NcclCommunicator>(
          mesh.stage(), "ostrakon", transports_.timeout,
          transports_.single_communicators ? comm::NcclCommunicator::Resources::of_parent
                                           : comm::NcclCommunicator::Resources::own);
    watch_ = std::make_unique<comm::NcclWatchdog>(transports_.timeout, transports_.stuck);
  }
#endif
  for (plan::Stream stream : {plan::Stream::gather, plan::Stream::reduce, plan::Stream::exchange})
    for (const plan::Span& span : spans_of(stream, programs)) {
      channels_[stream].push_back(
          {span, make_group(span, programs.train.plan.grid, rank, mesh), 0});
      carry(*channels_[stream].back().communicator, stream, span, mesh);
    }
  open_windows(programs.train.plan.grid, mesh, shared);
  const bool staged = transports_.transport != comm::TransportKind::mpi_direct;
  messages_ = std::make_unique<comm::Messages>(mesh.pipeline(), staged);
  carry_messages(programs, mesh);
}

Channels::~Channels() = default;

/// Gives a group a transport for device memory. Collective over the stage, in the same order on all
/// ranks.
void Channels::carry([[maybe_unused]] Communicator& group, [[maybe_unused]] plan::Stream stream,
                     [[maybe_unused]] const plan::Span& span, [[maybe_unused]] mesh::Mesh& mesh) {
#if OSTRAKON_HAS_DEVICE
  if (transports_.transport != comm::TransportKind::nccl) {
    if (group.size() > 1)
      group.set_transport(std::make_unique<comm::MpiTransport>(
          group.mpi(), transports_.transport == comm::TransportKind::mpi_staged));
    return;
  }
#if defined(OSTRAKON_HAVE_NCCL)
  if (nccl_ == nullptr) return;
  const bool is_single = transports_.single_communicators;
  const auto made = std::find_if(shared_.begin(), shared_.end(),
                                 [&](const Shared& one) { return one.span == span; });
  Shared use;
  if (is_single && made != shared_.end()) {
    use = *made;
  } else {
    int first = mesh.stage().rank();
    group.broadcast(&first, sizeof first, 0);
    use.span = span;
    use.communicator = std::make_shared<comm::NcclCommunicator>(
        *nccl_, group.size() > 1 ? first : -1, group.rank(),
        text("ostrakon ", is_single ? "all streams" : plan::name(stream), " over ", span.ranks,
             " ranks of ", plan::name(span.axis)));
    if (is_single) {
      use.order = std::make_shared<comm::NcclOrder>();
      shared_.push_back(use);
    }
  }
  if (group.size() == 1) return;
  auto transport = std::make_unique<comm::NcclTransport>(use.communicator, group.rank(),
                                                         watch_.get(), use.order);
  transport->connect();
  group.set_transport(std::move(transport));
#endif
#endif
}

/// Maps the memory of ranks in windows. Collective over the stage, in the same order on all ranks.
void Channels::open_windows(const plan::Grid& grid, mesh::Mesh& mesh,
                            const std::vector<SharedMemory*>& shared) {
  if (grid.window == 0) return;
  int windows = 0;
  const auto each = [&](const auto& open) {
    for (const auto& [stream, channels] : channels_)
      for (const Channel& channel : channels)
        if (channel.communicator->size() > 1 && grid.has_window(channel.span))
          open(*channel.communicator);
  };
  each([&](Communicator&) { ++windows; });
  Communicator node = Communicator::split(mesh.stage().mpi(), mesh.stage().rank() / grid.window);
  const auto memory = std::make_shared<const comm::NodeMemory>(node, shared, windows);
  int number = 0;
  each([&](Communicator& group) {
    group.set_window(std::make_unique<comm::Window>(memory, group, number++));
  });
}

/// Sends messages by NCCL, if no stage sends buffers in host memory. Collective over the ranks with
/// the same place in all stages, each of which knows only its own messages.
void Channels::carry_messages([[maybe_unused]] const Programs& programs,
                              [[maybe_unused]] mesh::Mesh& mesh) {
#if defined(OSTRAKON_HAVE_NCCL)
  comm::Communicator& stages = mesh.pipeline();
  if (transports_.transport != comm::TransportKind::nccl || !transports_.has_streams ||
      stages.size() == 1)
    return;
  std::set<int> sent_to;
  double on_host = 0.0;
  for (const runtime::Program* program : programs.all())
    for (const plan::Action& action : program->plan.actions) {
      if (!plan::is_message(action.kind)) continue;
      if (action.kind == plan::Kind::send) sent_to.insert(action.peer);
      if (is_on_host(program->plan, action)) on_host = 1.0;
    }
  stages.all_reduce_max(&on_host, 1);
  std::string mine;
  for (const int to : sent_to) mine += text(to, ' ');
  std::vector<comm::NcclMessages::Pair> pairs;
  const std::vector<std::string> all = stages.gather_texts(mine);
  for (std::size_t from = 0; from < all.size(); ++from) {
    std::istringstream list(all[from]);
    for (int to = 0; list >> to;) pairs.emplace_back(static_cast<int>(from), to);
  }
  if (on_host > 0.0 || pairs.empty()) return;
  messages_->set_transport(std::make_unique<comm::NcclMessages>(stages, pairs, "ostrakon stages",
                                                                transports_.timeout, watch_.get()));
#endif
}

void Channels::note_failure([[maybe_unused]] const std::exception_ptr& failure) const {
#if defined(OSTRAKON_HAVE_NCCL)
  constexpr double most_seconds = 5.0;  // time in which ranks that all fail end
  if (watch_ == nullptr) return;
  if (failure == nullptr) return watch_->clear_failure_deadline();
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    watch_->set_failure_deadline(error.what(), std::min(most_seconds, transports_.timeout));
  } catch (...) {
    watch_->set_failure_deadline("an exception of unknown type",
                                 std::min(most_seconds, transports_.timeout));
  }
#endif
}

bool Channels::blocks(plan::Stream stream) const {
  if (stream == plan::Stream::send || stream == plan::Stream::receive)
    return messages_->has_to_be_finished();
  return channels_.count(stream) > 0 && transports_.transport != comm::TransportKind::nccl;
}

const Channels::Channel& Channels::channel_of(plan::Stream stream, const plan::Span& span) const {
  const std::vector<Channel>& channels = channels_.at(stream);
  const auto found = std::find_if(channels.begin(), channels.end(),
                                  [&](const Channel& one) { return one.span == span; });
  if (found == channels.end()) throw std::logic_error("a span of ranks has no communicator");
  return *found;
}

Communicator& Channels::of(plan::Stream stream, const plan::Span& span) const {
  return *channel_of(stream, span).communicator;
}

void Channels::leave_out(const plan::Action& action, std::int64_t bytes) const {
  if (math::WarmUp::runs()) return;
  channel_of(action.stream, action.span).bytes_left_out += bytes;
}

std::int64_t Channels::bytes_left_out(const plan::Span& span) const {
  std::int64_t bytes = 0;
  for (const auto& [stream, channels] : channels_)
    for (const Channel& channel : channels)
      if (channel.span == span) bytes += channel.bytes_left_out;
  return bytes;
}

std::int64_t Channels::bytes_sent(const plan::Span& span) const {
  std::int64_t bytes = span.axis == plan::Axis::pipeline ? messages_->bytes_sent() : 0;
  for (const auto& [stream, channels] : channels_)
    for (const Channel& channel : channels)
      if (channel.span == span) bytes += channel.communicator->bytes_sent();
  return bytes;
}

void Channels::slow_down(double seconds_per_byte) {
  for (const auto& [stream, channels] : channels_)
    for (const Channel& channel : channels) channel.communicator->slow_down(seconds_per_byte);
}

}  // namespace ostrakon::train
