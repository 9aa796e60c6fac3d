// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/train/memory_check.hpp>
#include <ostrakon/train/numbers.hpp>
#include <ostrakon/train/peak_rate.hpp>
#include <ostrakon/train/step_size.hpp>
#include <ostrakon/train/threads.hpp>
#include <ostrakon/train/trainer.hpp>
#include <ostrakon/train/unit_buffers.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::train {

using plan::Kind;
using plan::Purpose;
using plan::Role;
using runtime::ActionBuffers;

std::unique_ptr<model::AnyDecoder> make_decoder(const config::Settings& settings) {
  const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  return model::make_decoder(
      settings.precision.gather, settings.model,
      {settings.training.micro_batch_size, settings.training.sequence_length}, settings.recompute,
      [rules](const std::string& name) { return optim::is_frozen(rules, name); });
}

plan::ModelDescription describe(const model::AnyDecoder& decoder,
                                const optim::OptimizerSettings& optimizer) {
  plan::ModelDescription description = decoder.description();
  description.master_bytes = sizeof(float);
  description.sums_bytes = step_sums * sizeof(std::int64_t);
  for (int u = 0; u < decoder.units(); ++u) {
    plan::UnitDescription& unit = description.units[u];
    for (const model::Parameter& parameter : decoder.parameters(u)) {
      if (parameter.frozen || optim::rule_of(optimizer, parameter) != optim::OptimizerKind::muon)
        continue;
      const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1];
      const auto smaller = static_cast<double>(std::min(rows, columns));
      const auto larger = static_cast<double>(std::max(rows, columns));
      // Three products an iteration: with the transpose, that with itself, and with the matrix.
      const double flops = 2.0 * smaller * smaller * (2.0 * larger + smaller);
      unit.whole_matrices.push_back(
          {parameter.offset, parameter.elements(), optimizer.muon_iterations * flops});
      unit.orthogonalize_workspace_bytes = std::max(
          unit.orthogonalize_workspace_bytes, optim::orthogonalize_workspace<float>(rows, columns));
    }
    std::sort(unit.whole_matrices.begin(), unit.whole_matrices.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
  }
  return description;
}

namespace {

/// Throws Error where collectives are to be in two levels, but nodes are not what that takes.
void require_regular_nodes(const config::Settings& settings, const mesh::Mesh& mesh) {
  const bool is_asked = settings.parallel.hierarchical.kind == plan::Hierarchical::always;
  require(!is_asked || mesh.ranks_per_node() > 0 || settings.shard_group == mesh::node_group,
          "parallel.hierarchical_collectives = always: the ", mesh.nodes(),
          " nodes don't have equally many ranks each, numbered one after the other; start ranks "
          "node by node, the same number on each, or leave it at auto");
}

}  // namespace

Trainer::Trainer(const config::Settings& settings, mesh::Mesh& mesh)
    : settings_(settings),
      mesh_(mesh),
      decoder_(make_decoder(settings)),
      rank_(mesh.replicate_group().rank() * mesh.shard_group().size() + mesh.shard_group().rank()),
      description_(describe(*decoder_, settings.optimizer)),
      loss_scale_(settings.precision.loss_scale) {
  if (settings.stability.outlier_threshold > 0.0)
    outliers_.emplace(optim::OutlierSettings{settings.stability.outlier_window,
                                             settings.stability.outlier_threshold});
  const int ranks = mesh.world().size();
  config::complete(settings_);
  settings_.parallel.shard_group = mesh.shard_group().size();
  settings_.parallel.ranks_per_node = mesh.ranks_per_node();
  const auto program = [&](Purpose purpose) {
    return runtime::make_program(
        plan::build_step_plan(description_, ranks, settings_.parallel, purpose));
  };
  mesh.world().agree([&] {
    require_regular_nodes(settings, mesh);
    train_ = program(Purpose::train);
    evaluate_ = program(Purpose::evaluate);
    export_ = program(Purpose::export_parameters);
  });
  for (const runtime::Program* other : {&evaluate_, &export_})
    for (std::size_t b = 0; b < train_.plan.buffers.size(); ++b) {
      if (!train_.plan.buffers[b].persistent) break;
      if (other->memory.offsets[b] != train_.memory.offsets[b] ||
          other->host_memory.offsets[b] != train_.host_memory.offsets[b])
        throw std::logic_error("plans of a run have their state in different places");
    }
  for (const plan::Action& action : train_.plan.actions)
    if (action.kind == Kind::load) last_loaded_ = action.micro_batch;
  for (int u = 0; u < decoder_->units(); ++u) {
    stretches_.push_back(stretches(u));
    gaps_.push_back(gaps(u));
  }
  streams_ = choose_streams(settings, mesh);
  places_ = find_places();
  note_slices();
}

const runtime::Program& Trainer::program(Purpose purpose) const {
  return purpose == Purpose::train ? train_ : purpose == Purpose::evaluate ? evaluate_ : export_;
}

std::int64_t Trainer::arena_bytes(plan::Space space) const {
  std::int64_t most = 0;
  for (const runtime::Program* program : {&train_, &evaluate_, &export_})
    most = std::max(
        most, (space == plan::Space::device ? program->memory : program->host_memory).arena_bytes);
  return most;
}

std::int64_t Trainer::planned_peak_bytes() const {
  return arena_bytes(plan::Space::device) + arena_bytes(plan::Space::host);
}

double Trainer::model_flops() const {
  return plan::model_flops(description_) * static_cast<double>(train_.plan.grid.micro_batches());
}

void Trainer::require_memory() {
  comm::Communicator& host = mesh_.host();
  // Every process needs room beside the arena: libraries, message buffers, the program itself.
  constexpr std::int64_t process_bytes = std::int64_t{150} << 20;
  mesh_.world().agree([&] {
    require(
        memory_is_host_accessible || mesh_.world().size() == 1,
        "this build computes on devices, whose memory it can't communicate yet; start one rank");
    require_short_plan(
        {decoder_->parameter_count(), decoder_->units(), train_.plan.grid.micro_batches()});
    const std::int64_t on_device_planned = arena_bytes(plan::Space::device);
    const std::int64_t on_host_planned = arena_bytes(plan::Space::host);
    const std::int64_t left_on_host = runtime::available_memory_bytes(plan::Space::host);
    std::vector<MemoryNeed> needs;
    if (on_device)
      needs = {{" in device memory", on_device_planned, 0,
                runtime::available_memory_bytes(plan::Space::device)},
               {" in host memory", on_host_planned, process_bytes, left_on_host}};
    else
      needs = {{"", on_device_planned + on_host_planned, process_bytes, left_on_host}};
    const std::string problem = what_does_not_fit(needs, host.size());
    const plan::Policy& policy = settings_.parallel;
    const bool gains_nothing =
        !on_device && (policy.offload != plan::Offload::none || policy.offload_activations);
    require(problem.empty(), "the model does not fit: ", problem,
            "; use more hosts, a smaller model, another training.micro_batch_size (a small one "
            "saves activations, a large one partial sums of gradients)",
            policy.sharding != plan::Sharding::none ? "" : ", or parallel.sharding: full",
            "; ostrakon-plan --fit lists settings that fit",
            gains_nothing ? " (offloading gains nothing in a build without a device)" : "");
  });
}

void Trainer::require_same_plan() {
  Facts plans;
  for (const auto& [name, purpose] :
       {std::pair{"training", Purpose::train}, std::pair{"validation", Purpose::evaluate},
        std::pair{"writing weights", Purpose::export_parameters}})
    plans.push_back({text("plan of ", name), format_hex(program(purpose).plan.hash())});
  comm::require_agreement(mesh_.world(), "ranks have made different plans", plans);
}

void Trainer::allocate() {
  arena_ = std::make_unique<runtime::Arena>(arena_bytes(plan::Space::device));
  host_arena_ = std::make_unique<runtime::Arena>(arena_bytes(plan::Space::host), plan::Space::host,
                                                 settings_.pinned_host_memory);
  scratch_ = reinterpret_cast<float*>(arena_->data() + train_.memory.persistent_bytes);
  const std::int64_t room = arena_->bytes() - train_.memory.persistent_bytes;
  chunk_ = room / (2 * static_cast<std::int64_t>(sizeof(float))) / model::parameter_alignment *
           model::parameter_alignment;
  for (plan::Stream stream : {plan::Stream::gather, plan::Stream::reduce})
    channels_.emplace(stream, make_channel(stream));
  executor_ = std::make_unique<runtime::Executor>(
      runtime::Arenas{arena_->data(), host_arena_->data()}, streams_);
  sample_.resize(static_cast<std::size_t>(settings_.training.sequence_length + 1));
  set_handlers();
}

Trainer::Channel Trainer::make_channel(plan::Stream stream) {
  Channel channel;
  const auto add = [&](const plan::Span& span) {
    if (std::none_of(channel.begin(), channel.end(),
                     [&](const Group& group) { return group.span == span; }))
      channel.push_back(make_group(span));
  };
  for (plan::Axis axis : {plan::Axis::shard, plan::Axis::replicate})
    for (const plan::Span& span : train_.plan.grid.levels(axis)) add(span);
  for (const runtime::Program* program : {&train_, &evaluate_, &export_})
    for (const plan::Action& action : program->plan.actions)
      if (action.stream == stream && plan::communicates(action.kind)) add(action.span);
  return channel;
}

/// This rank's group of those into which a span divides its axis. Collective over the axis.
Trainer::Group Trainer::make_group(const plan::Span& span) const {
  using comm::Communicator;
  const Communicator& axis = axis_group(span.axis);
  if (span == train_.plan.grid.span(span.axis))
    return {span, std::make_unique<Communicator>(Communicator::duplicate(axis.mpi()))};
  // Of the group: its ranks are as far apart as the span says.
  const int first = axis.rank() - train_.plan.grid.place(rank_, span) * span.stride;
  return {span,
          std::make_unique<Communicator>(Communicator::split(axis.mpi(), first, axis.rank()))};
}

comm::Communicator& Trainer::communicator(plan::Stream stream, const plan::Span& span) const {
  const Channel& channel = channels_.at(stream);
  const auto group = std::find_if(channel.begin(), channel.end(),
                                  [&](const Group& one) { return one.span == span; });
  if (group == channel.end()) throw std::logic_error("a span of ranks has no communicator");
  return *group->communicator;
}

std::int64_t Trainer::bytes_sent(const plan::Span& span) const {
  std::int64_t bytes = 0;
  for (const auto& [stream, channel] : channels_)
    for (const Group& group : channel)
      if (group.span == span) bytes += group.communicator->bytes_sent();
  return bytes;
}

void Trainer::slow_down(plan::Stream stream, double seconds_per_byte) {
  for (const Group& group : channels_.at(stream)) group.communicator->slow_down(seconds_per_byte);
}

double Trainer::measure_peak_flops(double seconds) {
  double own = 0.0;
  with_number(decoder_->number(),
              [&](auto number) { own = measure_own_peak_flops<decltype(number)>(seconds); });
  // In whole operations, which sum without rounding.
  std::int64_t sum = std::llround(own);
  mesh_.world().sum(&sum, 1);
  return static_cast<double>(sum) / mesh_.world().size();
}

template <class T>
double Trainer::measure_own_peak_flops(double seconds) {
  const std::int64_t third = arena_->bytes() / static_cast<std::int64_t>(3 * sizeof(T));
  const auto largest = static_cast<std::int64_t>(std::sqrt(static_cast<double>(third)));
  auto* data = reinterpret_cast<T*>(arena_->data());
  const auto seconds_of = [&](std::int64_t side) {
    const Matrix<T> a(data, side, side), b(data + side * side, side, side),
        c(data + 2 * side * side, side, side);
    math::fill(exec_, data, 2 * side * side, T(1.0f));
    exec_.fence();
    const Stopwatch timer;
    math::gemm<T>(exec_, math::Transpose::no, math::Transpose::yes, 1.0f, a, b, 0.0f, c);
    exec_.fence();
    return timer.seconds();
  };
  return best_product_rate(std::max<std::int64_t>(1, largest), seconds, seconds_of);
}

/// What this rank's part of a flat parameter has of each parameter, in the order of their offsets.
std::vector<Trainer::Piece> Trainer::pieces(int flat, const plan::Spans& divided) const {
  return pieces_of(rank_, flat, divided);
}

/// The same of another rank, by its number in plans.
std::vector<Trainer::Piece> Trainer::pieces_of(int rank, int flat,
                                               const plan::Spans& divided) const {
  const plan::FlatParameter& whole = train_.plan.flats[flat];
  const std::int64_t begin = train_.plan.first_element(flat, divided, rank);
  const std::int64_t end = begin + train_.plan.elements({flat, flat + 1}, divided);
  std::vector<Piece> found;
  for (const model::Parameter& parameter : decoder_->parameters(whole.unit)) {
    if (parameter.frozen == whole.trained) continue;
    const std::int64_t first = std::max(parameter.offset, begin);
    const std::int64_t last = std::min(parameter.offset + parameter.elements(), end);
    if (first < last)
      found.push_back({&parameter, first - parameter.offset, first - begin, last - first});
  }
  std::sort(found.begin(), found.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return found;
}

/// What of a unit's trained flat parameter is no parameter's.
std::vector<Trainer::Range> Trainer::gaps(int unit) const {
  std::vector<Range> found;
  const plan::FlatRange trained = train_.plan.trained(unit);
  if (trained.empty()) return found;
  std::int64_t end = 0;
  const auto add_up_to = [&](std::int64_t begin) {
    if (begin > end) found.push_back({end, begin});
  };
  for (const Piece& piece : pieces(trained.first, {})) {
    add_up_to(piece.offset);
    end = piece.offset + piece.count;
  }
  add_up_to(train_.plan.padded(trained));
  return found;
}

void Trainer::set_handlers() {
  const auto on = [this](Kind kind, void (Trainer::*handler)(const ActionBuffers&)) {
    executor_->on(kind,
                  [this, handler](const ActionBuffers& buffers) { (this->*handler)(buffers); });
  };
  on(Kind::begin, &Trainer::begin);
  on(Kind::load, &Trainer::load);
  on(Kind::gather, &Trainer::gather);
  on(Kind::keep, &Trainer::keep);
  on(Kind::copy_to_device, &Trainer::copy);
  on(Kind::copy_to_host, &Trainer::copy);
  on(Kind::forward, &Trainer::forward);
  on(Kind::recompute, &Trainer::forward);
  on(Kind::backward, &Trainer::backward);
  executor_->on(Kind::loss, [this](const ActionBuffers& buffers) {
    math::add_terms(exec_, buffers.get<float>(Role::output), decoder_->leaf().rows(),
                    buffers.get<std::int64_t>(Role::sums));
  });
  on(Kind::reduce_scatter, &Trainer::reduce_scatter);
  on(Kind::accumulate, &Trainer::accumulate);
  on(Kind::norm, &Trainer::norm);
  on(Kind::clip, &Trainer::finish_sums);
  on(Kind::direction, &Trainer::direction);
  on(Kind::gather_gradients, &Trainer::gather_gradients);
  on(Kind::orthogonalize, &Trainer::orthogonalize);
  on(Kind::optimize, &Trainer::optimize);
  on(Kind::gather_updates, &Trainer::gather_updates);
  on(Kind::visit, &Trainer::show);
}

void Trainer::load(const ActionBuffers& buffers) {
  const std::int64_t tokens = settings_.training.sequence_length;
  const std::int64_t rows = decoder_->leaf().rows();
  const std::int64_t leaf = running_->plan.leaf(rank_, buffers.action.micro_batch);
  auto* batch = buffers.get<std::int32_t>(Role::host_batch);
  try {
    for (std::int64_t s = 0; s < decoder_->leaf().batch; ++s) {
      dataset_->read(first_sample_ + static_cast<std::uint64_t>(leaf * decoder_->leaf().batch + s),
                     sample_.data());
      std::copy_n(sample_.begin(), tokens, batch + s * tokens);
      std::copy_n(sample_.begin() + 1, tokens, batch + rows + s * tokens);
    }
  } catch (const std::exception& error) {
    // The other ranks go on: this one does too, to where they next talk of how the step went.
    load_error_ = error.what();
    std::fill_n(batch, 2 * rows, 0);
  }
  // Where updates begin before ranks talk of the step, none may be made of what was not read.
  if (updates_early() && running_ == &train_ && buffers.action.micro_batch == last_loaded_) {
    mesh_.world().agree([&] { require(load_error_.empty(), load_error_); });
    intact_ = false;
  }
  math::copy_to_device(exec_, batch, buffers.get<std::int32_t>(Role::batch),
                       static_cast<std::size_t>(2 * rows));
}

void Trainer::forward(const ActionBuffers& buffers) {
  const std::int64_t rows = decoder_->leaf().rows();
  const int u = buffers.action.unit;
  decoder_->forward(
      u, exec_, unit_buffers<void>(buffers, running_->plan, description_.units[u].tied_to, rows),
      {0, rows});
}

void Trainer::backward(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const int u = action.unit, tied_to = description_.units[u].tied_to;
  const model::UnitBuffers<void> unit =
      unit_buffers<void>(buffers, running_->plan, tied_to, decoder_->leaf().rows());
  auto* const own = static_cast<float*>(unit.parameter_gradients);
  auto* const of_tied = static_cast<float*>(unit.tied_gradients);
  if (own != nullptr && !action.gradients_opened) clear_gaps(u, own);
  if (of_tied != nullptr) clear_gaps(tied_to, of_tied);
  const auto tokens = settings_.training.global_batch_size * settings_.training.sequence_length;
  decoder_->backward(u, exec_, unit,
                     static_cast<float>(result_.loss_scale / static_cast<double>(tokens)),
                     action.gradients_opened);
  if (u == spoilt_ && action.micro_batch == 0 && own != nullptr)
    math::fill(exec_, own, 1, std::numeric_limits<float>::infinity());
  if (!diagnoses_) return;
  const int distance = 2 * (decoder_->units() - 1 - u);
  inspect(action, u, distance, own);
  inspect(action, tied_to, distance + 1, of_tied);
}

// Padding takes part in sums over ranks and in the norm: it holds zeros, not what was there before.
void Trainer::clear_gaps(int unit, float* gradients) {
  for (const Range& gap : gaps_[unit])
    math::fill(exec_, gradients + gap.begin, gap.end - gap.begin, 0.0f);
}

/// Of parameters as an action sends or copies them.
Number Trainer::number_of(const plan::Action& action) const {
  return action.element_bytes == train_.plan.layouts.masters.element_bytes ? Number::fp32
                                                                           : decoder_->number();
}

template <class A, class B>
void Trainer::convert(const plan::Action& action, const A* from, B* to, std::int64_t count) {
  // Other streams may be threads that Kokkos does not know, where memory is the host's.
  if (on_device || action.stream == plan::Stream::compute) {
    math::convert(exec_, from, to, count);
    if constexpr (on_device) exec_.fence();
  } else {
    math::host::convert(from, to, count);
  }
}

void Trainer::gather(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  comm::Communicator& group = communicator(action);
  const std::int64_t part = action.elements / group.size();
  const int flat = action.flats.first;
  const plan::Spans whole = gathered_in(buffers, Role::parameters);
  const plan::Spans parts = parts_of(buffers, Role::parameters);
  const Role source = action.buffer(Role::shard) >= 0 ? Role::shard : Role::parameters;
  with_number(number_of(action), [&](auto number) {
    using T = decltype(number);
    const T* shard = find<T>(buffers, source, flat, parts);
    if (action.converts) {
      T* const own = find<T>(buffers, Role::parameters, flat, parts);
      convert(action, find<float>(buffers, Role::shard, flat, parts), own, part);
      shard = own;
    }
    group.all_gather(shard, part, find<T>(buffers, Role::parameters, flat, whole));
  });
}

plan::Spans Trainer::gathered_in(const ActionBuffers& buffers, Role role) const {
  return running_->plan.gathered(buffers.action, role);
}

plan::Spans Trainer::parts_of(const ActionBuffers& buffers, Role role) const {
  plan::Spans parts = gathered_in(buffers, role);
  parts.push(buffers.action.span);
  return parts;
}

void Trainer::keep(const ActionBuffers& buffers) {
  const plan::StepPlan& plan = running_->plan;
  const plan::Buffer& kept = plan.buffers[buffers.action.buffer(Role::shard)];
  with_number(decoder_->number(), [&](auto number) {
    using T = decltype(number);
    for (int flat = kept.flats.first; flat < kept.flats.end; ++flat)
      math::copy(exec_, find<T>(buffers, Role::parameters, flat, kept.divided),
                 find<T>(buffers, Role::shard, flat, kept.divided),
                 plan.elements({flat, flat + 1}, kept.divided));
  });
}

void Trainer::reduce_scatter(const ActionBuffers& buffers) {
  comm::Communicator& group = communicator(buffers.action);
  const std::int64_t part = buffers.action.elements / group.size();
  auto* shard = buffers.get<float>(Role::gradient_shard);
  const auto* gradients = buffers.get<float>(Role::parameter_gradients);
  const comm::LocalSum local = {buffers.action.tree, buffers.action.continues_sum()};
  if (buffers.action.buffer(Role::packed) < 0) {
    group.reduce_scatter(gradients, part, buffers.get<float>(Role::staging), shard, local);
    return;
  }
  with_number(settings_.parallel.reduce, [&](auto number) {
    using T = decltype(number);
    T* const packed = buffers.get<T>(Role::packed);
    convert(buffers.action, gradients, packed, buffers.action.elements);
    group.reduce_scatter(packed, part, buffers.get<T>(Role::staging), shard, local);
  });
}

/// Between the memory of the host and of the device.
void Trainer::copy(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const plan::StepPlan& plan = running_->plan;
  const auto find_begin = [&](Role role) {
    const int buffer = action.buffer(role);
    const std::int64_t first =
        action.flats.empty()
            ? 0
            : plan.offset_in(plan.buffers[buffer], action.flats.first, action.divided, rank_);
    return buffers.at<char>(buffer) + first * action.element_bytes;
  };
  const char* const source = find_begin(Role::source);
  char* const target = find_begin(Role::target);
  const auto bytes = static_cast<std::size_t>(action.elements * action.element_bytes);
  if constexpr (!on_device)
    std::memcpy(target, source, bytes);
  else if (action.kind == Kind::copy_to_device)
    math::copy_to_device(exec_, source, target, bytes);
  else
    math::copy_to_host(exec_, source, target, bytes);
}

void Trainer::show(const ActionBuffers& buffers) {
  exec_.fence();
  const plan::StepPlan& plan = running_->plan;
  const int unit = buffers.action.unit;
  const auto* frozen = buffers.get<float>(Role::parameters);
  visitor_(unit, frozen + plan.padded(plan.frozen(unit)), frozen);
}

StepResult Trainer::step(data::Dataset& dataset, std::int64_t step) {
  running_ = &train_;
  dataset_ = &dataset;
  step_ = step;
  first_sample_ = static_cast<std::uint64_t>(
      samples_before_ + (step - first_step_) * settings_.training.global_batch_size);
  spoilt_ = std::exchange(next_spoilt_, -1);
  result_.skipped.clear();
  result_.loss_scale = config::scales_loss(settings_) ? loss_scale_.value() : 1.0;
  result_.learning_rate = optim::learning_rate(
      settings_.schedule, settings_.optimizer.learning_rate, step, settings_.training.steps);
  leaves_out_ = bad_gradient_ = diagnoses_ = false;
  gradient_scale_ = 1.0 / result_.loss_scale;
  const bool was_intact = intact_;
  executor_->run(train_);
  if (bad_gradient_) {
    // No parameter has changed: a second run makes the same gradients, bit for bit.
    diagnoses_ = true;
    origin_.reset();
    executor_->run(train_);
    diagnoses_ = false;
    if (!settings_.stability.skip_non_finite)
      throw AgreedError(failure(text("step ", step), diagnosis_, false));
    result_.skipped = diagnosis_;
  }
  exec_.fence();
  intact_ = was_intact;
  if (result_.skipped.empty()) ++updates_;
  return result_;
}

double Trainer::evaluate(data::Dataset& dataset, std::int64_t batches) {
  running_ = &evaluate_;
  dataset_ = &dataset;
  double total = 0.0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    first_sample_ = static_cast<std::uint64_t>(batch * settings_.training.global_batch_size);
    executor_->run(evaluate_);
    total += result_.loss;
  }
  return total / static_cast<double>(batches);
}

void Trainer::visit_parameters(const Visitor& visit) {
  running_ = &export_;
  visitor_ = visit;
  executor_->run(export_);
  visitor_ = nullptr;
}

}  // namespace ostrakon::train
