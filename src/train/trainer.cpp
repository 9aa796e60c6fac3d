// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/train/trainer.hpp>
#include <ostrakon/train/unit_buffers.hpp>

namespace ostrakon::train {

using plan::Kind;
using plan::Purpose;
using plan::Role;
using runtime::ActionBuffers;

namespace {

constexpr int sums = 2 * math::exact_sum_limbs;  // of losses, then of squared gradients
static_assert(plan::shard_alignment % math::norm_block == 0,
              "shards begin within a block of the norm");
static_assert(model::parameter_alignment % math::norm_block == 0,
              "parameters begin within a block of the norm");

}  // namespace

plan::ModelDescription describe(const model::Decoder<float>& decoder) {
  plan::ModelDescription description = decoder.description();
  description.sums_bytes = sums * sizeof(std::int64_t);
  return description;
}

runtime::Streams choose_streams(const config::Settings& settings, mesh::Mesh& mesh) {
  using Choice = config::StreamsChoice;
  if (settings.runtime.streams == Choice::in_plan_order) return runtime::Streams::in_plan_order;
  const bool may = comm::Communicator::threads_may_call();
  if (settings.runtime.streams == Choice::threads) {
    mesh.world().agree([&] {
      require(may,
              "runtime.streams = threads: this MPI lets only one thread of a rank call it; "
              "expected inline, auto, or an MPI with MPI_THREAD_MULTIPLE");
    });
    return runtime::Streams::threads;
  }
  // Two threads talk, and MPI keeps a core busy while it waits. All ranks decide alike: in another
  // order of collectives they would wait for each other.
  const bool pays = mesh.world().size() > 1 && mesh.cores() >= settings.runtime.threads + 2;
  double wanted = may && pays ? 1.0 : 0.0;
  mesh.world().minimum(&wanted, 1);
  return wanted > 0.0 ? runtime::Streams::threads : runtime::Streams::in_plan_order;
}

Trainer::Trainer(const config::Settings& settings, mesh::Mesh& mesh)
    : settings_(settings),
      mesh_(mesh),
      decoder_(settings.model,
               {settings.training.micro_batch_size, settings.training.sequence_length}),
      description_(describe(decoder_)) {
  const int ranks = mesh.world().size();
  settings_.parallel.leaves = settings.training.leaves();
  settings_.parallel.shard_group = mesh.shard_group().size();
  const auto program = [&](Purpose purpose) {
    return runtime::make_program(
        plan::build_step_plan(description_, ranks, settings_.parallel, purpose));
  };
  mesh.world().agree([&] {
    train_ = program(Purpose::train);
    evaluate_ = program(Purpose::evaluate);
    export_ = program(Purpose::export_parameters);
  });
  for (const runtime::Program* other : {&evaluate_, &export_})
    for (std::size_t b = 0; b < train_.plan.buffers.size(); ++b) {
      if (!train_.plan.buffers[b].persistent) break;
      if (other->memory.offsets[b] != train_.memory.offsets[b])
        throw std::logic_error("plans of a run have their state in different places");
    }
  for (int u = 0; u < decoder_.units(); ++u) stretches_.push_back(stretches(u));
  streams_ = choose_streams(settings, mesh);
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
  double forward = 0.0;
  for (const plan::UnitDescription& unit : description_.units) forward += unit.forward_flops;
  return 3.0 * forward * static_cast<double>(train_.plan.micro_batches);
}

void Trainer::require_memory() {
  comm::Communicator& host = mesh_.host();
  // Every process needs room beside the arena: libraries, message buffers, the program itself.
  constexpr std::int64_t process_bytes = std::int64_t{150} << 20;
  mesh_.world().agree([&] {
    require(
        memory_is_host_accessible || mesh_.world().size() == 1,
        "this build computes on devices, whose memory it can't communicate yet; start one rank");
    // A plan takes memory too: so many actions about as much as the rest of the process may.
    constexpr std::int64_t most_visits = 60000;
    const std::int64_t micro_batches = train_.plan.micro_batches;
    require(decoder_.units() * micro_batches <= most_visits,
            "the plan of a step is too long: ", decoder_.units(), " units x ", micro_batches,
            " micro-batches on each rank = ", format_count(decoder_.units() * micro_batches),
            ", more than ", format_count(most_visits),
            "; raise training.micro_batch_size or use more ranks");
    const std::int64_t needed = host.size() * (planned_peak_bytes() + process_bytes);
    const std::int64_t available = runtime::available_memory_bytes();
    const bool sharded = settings_.parallel.sharding != plan::Sharding::none;
    require(needed <= available, "the model does not fit: ", host.size(),
            host.size() == 1 ? " rank" : " ranks", " on this host x (",
            format_bytes(planned_peak_bytes()), " planned + ", format_bytes(process_bytes),
            " for the process) = ", format_bytes(needed), ", but ", format_bytes(available),
            " are available; use more hosts, a smaller model, another training.micro_batch_size (a "
            "small one saves activations, a large "
            "one partial sums of gradients)",
            sharded ? "" : ", or parallel.sharding: full");
  });
}

void Trainer::require_same_plan() {
  const char* const names[] = {"training", "validation", "writing weights"};
  std::uint64_t mine[3], first[3];
  for (int p = 0; p < 3; ++p) mine[p] = first[p] = program(static_cast<Purpose>(p)).plan.hash();
  mesh_.world().broadcast(first, sizeof first, 0);
  mesh_.world().agree([&] {
    for (int p = 0; p < 3; ++p)
      require(mine[p] == first[p], "rank ", mesh_.world().rank(), " has made another plan of ",
              names[p], " than rank 0 (", format_hex(mine[p]), ", not ", format_hex(first[p]),
              "): do all ranks run the same program?");
  });
}

void Trainer::allocate() {
  arena_ = std::make_unique<runtime::Arena>(arena_bytes(plan::Space::device));
  host_arena_ = std::make_unique<runtime::Arena>(arena_bytes(plan::Space::host), plan::Space::host);
  for (plan::Stream stream : {plan::Stream::gather, plan::Stream::reduce})
    channels_.emplace(stream, make_channel(stream));
  executor_ = std::make_unique<runtime::Executor>(
      runtime::Arenas{arena_->data(), host_arena_->data()}, streams_);
  sample_.resize(static_cast<std::size_t>(settings_.training.sequence_length + 1));
  set_handlers();
}

Trainer::Channel Trainer::make_channel(plan::Stream stream) {
  using comm::Communicator;
  Channel channel;
  const Communicator& group = mesh_.shard_group();
  channel.shard = std::make_unique<Communicator>(Communicator::duplicate(group.mpi()));
  channel.replicate =
      std::make_unique<Communicator>(Communicator::duplicate(mesh_.replicate_group().mpi()));
  for (const runtime::Program* program : {&train_, &evaluate_, &export_})
    for (const plan::Action& action : program->plan.actions) {
      const int ranks = action.group_ranks;
      if (action.stream != stream || action.group != plan::Group::kept || channel.kept.count(ranks))
        continue;
      channel.kept.emplace(ranks, std::make_unique<Communicator>(Communicator::split(
                                      group.mpi(), group.rank() / ranks, group.rank())));
    }
  return channel;
}

std::int64_t Trainer::bytes_sent(plan::Group group) const {
  std::int64_t bytes = 0;
  for (const auto& [stream, channel] : channels_) {
    if (group == plan::Group::shard) bytes += channel.shard->bytes_sent();
    if (group == plan::Group::replicate) bytes += channel.replicate->bytes_sent();
    if (group == plan::Group::kept)
      for (const auto& [ranks, kept] : channel.kept) bytes += kept->bytes_sent();
  }
  return bytes;
}

void Trainer::slow_down(plan::Stream stream, double seconds_per_byte) {
  Channel& channel = channels_.at(stream);
  channel.shard->slow_down(seconds_per_byte);
  channel.replicate->slow_down(seconds_per_byte);
  for (const auto& [ranks, kept] : channel.kept) kept->slow_down(seconds_per_byte);
}

double Trainer::measure_peak_flops() {
  const std::int64_t elements = arena_->bytes() / static_cast<std::int64_t>(sizeof(float));
  const auto side =
      std::min<std::int64_t>(1024, std::llround(std::floor(std::sqrt(elements / 3.0))));
  auto* data = reinterpret_cast<float*>(arena_->data());
  math::fill(exec_, data, 3 * side * side, 1.0f);
  const Matrix<float> a(data, side, side), b(data + side * side, side, side),
      c(data + 2 * side * side, side, side);
  double best = 0.0, total = 0.0;
  for (int repeat = 0; repeat < 1000 && total < 0.25; ++repeat) {
    exec_.fence();
    Kokkos::Timer timer;
    math::gemm<float>(exec_, math::Transpose::no, math::Transpose::yes, 1.0f, a, b, 0.0f, c);
    exec_.fence();
    const double seconds = timer.seconds();
    if (repeat == 0) continue;  // the library prepares itself
    total += seconds;
    best = std::max(best, 2.0 * static_cast<double>(side * side * side) / seconds);
  }
  return best;
}

std::int64_t Trainer::first_element(int unit, plan::Part part) const {
  return train_.plan.first_element(unit, part, mesh_.replicate_group().rank(),
                                   mesh_.shard_group().rank());
}

comm::Communicator& Trainer::communicator(const plan::Action& action) const {
  const Channel& channel = channels_.at(action.stream);
  switch (action.group) {
    case plan::Group::replicate:
      return *channel.replicate;
    case plan::Group::kept:
      return *channel.kept.at(action.group_ranks);
    default:
      return *channel.shard;
  }
}

std::vector<Trainer::Piece> Trainer::pieces(int unit, plan::Part part) const {
  const std::int64_t begin = first_element(unit, part);
  const std::int64_t end = begin + train_.plan.elements(unit, part);
  std::vector<Piece> found;
  for (const model::Parameter& parameter : decoder_.unit(unit).parameters()) {
    const std::int64_t first = std::max(parameter.offset, begin);
    const std::int64_t last = std::min(parameter.offset + parameter.elements(), end);
    if (first < last)
      found.push_back({&parameter, first - parameter.offset, first - begin, last - first});
  }
  return found;
}

std::vector<Trainer::Stretch> Trainer::stretches(int unit) const {
  std::vector<Stretch> merged;
  for (const Piece& piece : pieces(unit, train_.plan.optimized)) {
    // Gaps hold zeros, which no decay changes: neighbours with like decay merge over them.
    const bool decays = piece.parameter->decays;
    if (merged.empty() || merged.back().decays != decays)
      merged.push_back({piece.offset, 0, decays});
    merged.back().count = piece.offset + piece.count - merged.back().offset;
  }
  return merged;
}

void Trainer::set_handlers() {
  runtime::Executor& executor = *executor_;
  executor.on(Kind::begin, [this](const ActionBuffers& buffers) {
    load_error_.clear();
    Kokkos::deep_copy(
        exec_,
        math::UnmanagedArray<std::int64_t, Memory>(buffers.get<std::int64_t>(Role::sums), sums),
        std::int64_t{0});
  });
  executor.on(Kind::load, [this](const ActionBuffers& buffers) { load(buffers); });
  executor.on(Kind::gather, [this](const ActionBuffers& buffers) { gather(buffers); });
  executor.on(Kind::keep, [this](const ActionBuffers& buffers) { keep(buffers); });
  executor.on(Kind::forward, [this](const ActionBuffers& buffers) { forward(buffers); });
  executor.on(Kind::backward, [this](const ActionBuffers& buffers) { backward(buffers); });
  executor.on(Kind::loss, [this](const ActionBuffers& buffers) {
    math::add_terms(exec_, buffers.get<float>(Role::output), decoder_.leaf().rows(),
                    buffers.get<std::int64_t>(Role::sums));
  });
  executor.on(Kind::reduce_scatter,
              [this](const ActionBuffers& buffers) { reduce_scatter(buffers); });
  executor.on(Kind::accumulate, [this](const ActionBuffers& buffers) { accumulate(buffers); });
  executor.on(Kind::norm, [this](const ActionBuffers& buffers) {
    math::add_squares(exec_, buffers.get<float>(Role::gradient_shard), buffers.action.elements,
                      buffers.get<std::int64_t>(Role::sums) + math::exact_sum_limbs);
  });
  executor.on(Kind::clip, [this](const ActionBuffers& buffers) { finish_sums(buffers); });
  executor.on(Kind::gather_gradients, [this](const ActionBuffers& buffers) {
    comm::Communicator& group = communicator(buffers.action);
    group.all_gather(buffers.get<float>(Role::gradient_shard),
                     buffers.action.elements / group.size(),
                     buffers.get<float>(Role::parameter_gradients));
  });
  executor.on(Kind::optimize, [this](const ActionBuffers& buffers) { optimize(buffers); });
  executor.on(Kind::gather_updates,
              [this](const ActionBuffers& buffers) { gather_updates(buffers); });
  executor.on(Kind::visit, [this](const ActionBuffers& buffers) {
    exec_.fence();
    visitor_(buffers.action.unit, buffers.get<float>(Role::parameters));
  });
}

void Trainer::load(const ActionBuffers& buffers) {
  const std::int64_t tokens = settings_.training.sequence_length;
  const std::int64_t rows = decoder_.leaf().rows();
  const std::int64_t leaf = running_->plan.leaf(
      mesh_.replicate_group().rank(), mesh_.shard_group().rank(), buffers.action.micro_batch);
  auto* batch = buffers.get<std::int32_t>(Role::host_batch);
  try {
    for (std::int64_t s = 0; s < decoder_.leaf().batch; ++s) {
      dataset_->read(first_sample_ + static_cast<std::uint64_t>(leaf * decoder_.leaf().batch + s),
                     sample_.data());
      std::copy_n(sample_.begin(), tokens, batch + s * tokens);
      std::copy_n(sample_.begin() + 1, tokens, batch + rows + s * tokens);
    }
  } catch (const std::exception& error) {
    // The other ranks go on: this one does too, to where they next talk of how the step went.
    load_error_ = error.what();
    std::fill_n(batch, 2 * rows, 0);
  }
  math::copy_to_device(exec_, batch, buffers.get<std::int32_t>(Role::batch),
                       static_cast<std::size_t>(2 * rows));
}

void Trainer::forward(const ActionBuffers& buffers) {
  decoder_.unit(buffers.action.unit)
      .forward(exec_, unit_buffers(buffers, decoder_.leaf().rows()), {0, decoder_.leaf().rows()});
}

void Trainer::backward(const ActionBuffers& buffers) {
  const model::UnitBuffers<float> unit = unit_buffers(buffers, decoder_.leaf().rows());
  const int u = buffers.action.unit;
  if (!buffers.action.gradients_opened) clear_gaps(u, unit.parameter_gradients);
  if (unit.lender_gradients) clear_gaps(description_.units[u].lender, unit.lender_gradients);
  const auto tokens = settings_.training.global_batch_size * settings_.training.sequence_length;
  decoder_.unit(u).backward(exec_, unit, static_cast<float>(1.0 / static_cast<double>(tokens)),
                            buffers.action.gradients_opened);
}

// Padding takes part in sums over ranks and in the norm: it holds zeros, not what was there before.
void Trainer::clear_gaps(int unit, float* gradients) {
  std::int64_t end = 0;
  const auto clear_to = [&](std::int64_t begin) {
    if (begin > end) math::fill(exec_, gradients + end, begin - end, 0.0f);
  };
  for (const model::Parameter& parameter : decoder_.unit(unit).parameters()) {
    clear_to(parameter.offset);
    end = parameter.offset + parameter.elements();
  }
  clear_to(train_.plan.padded_elements[unit]);
}

void Trainer::gather(const ActionBuffers& buffers) {
  comm::Communicator& group = communicator(buffers.action);
  group.all_gather(buffers.get<float>(Role::shard), buffers.action.elements / group.size(),
                   buffers.get<float>(Role::parameters));
}

void Trainer::keep(const ActionBuffers& buffers) {
  const std::int64_t part = mesh_.shard_group().rank() % buffers.action.group_ranks;
  math::copy(exec_, buffers.get<float>(Role::parameters) + part * buffers.action.elements,
             buffers.get<float>(Role::shard), buffers.action.elements);
}

void Trainer::reduce_scatter(const ActionBuffers& buffers) {
  comm::Communicator& group = communicator(buffers.action);
  group.reduce_scatter(buffers.get<float>(Role::parameter_gradients),
                       buffers.action.elements / group.size(), buffers.get<float>(Role::staging),
                       buffers.get<float>(Role::gradient_shard));
}

void Trainer::accumulate(const ActionBuffers& buffers) {
  const auto* source = buffers.get<float>(Role::source);
  auto* sum = buffers.get<float>(Role::parameter_gradients);
  // Other streams may be threads that Kokkos does not know. Their memory is the host's.
  if (buffers.action.stream == plan::Stream::compute)
    math::add_to(exec_, source, sum, buffers.action.elements);
  else
    math::host::add_to(source, sum, buffers.action.elements);
}

void Trainer::gather_updates(const ActionBuffers& buffers) {
  comm::Communicator& group = communicator(buffers.action);
  const int unit = buffers.action.unit;
  // Over replicas the parts of this rank's shard are gathered, which may be stored in the whole.
  const plan::Part whole =
      buffers.action.group == plan::Group::shard ? plan::Part::whole : plan::Part::group;
  float* parameters = buffers.get<float>(Role::shard) + first_element(unit, whole) -
                      first_element(unit, train_.plan.stored);
  const std::int64_t part = buffers.action.elements / group.size();
  group.all_gather(parameters + group.rank() * part, part, parameters);
}

void Trainer::finish_sums(const ActionBuffers& buffers) {
  auto* losses = buffers.get<std::int64_t>(Role::host_sums);
  std::int64_t* squares = losses + math::exact_sum_limbs;
  std::int64_t& failures = losses[sums];
  math::copy_to_host(exec_, buffers.get<std::int64_t>(Role::sums), losses, sums);
  // Carries now, so that room for them is needed once a rank, not once a term.
  math::exact_sum_carry(losses);
  math::exact_sum_carry(squares);
  failures = load_error_.empty() ? 0 : 1;
  mesh_.world().sum(losses, sums + 1);
  if (failures > 0) mesh_.world().agree([&] { require(load_error_.empty(), load_error_); });

  const std::int64_t tokens =
      settings_.training.global_batch_size * settings_.training.sequence_length;
  result_.loss = math::exact_sum_value(losses) / static_cast<double>(tokens);
  if (math::exact_sum_non_finite(losses) > 0)
    throw AgreedError(
        text(running_->plan.purpose == Purpose::train ? "step " : "validation after step ", step_,
             ": the loss is not finite (", math::exact_sum_non_finite(losses), " of ", tokens,
             " tokens). Try a lower optimizer.learning_rate or a longer schedule.warmup_steps"));
  if (running_->plan.purpose != Purpose::train) return;
  if (math::exact_sum_non_finite(squares) > 0)
    throw AgreedError(
        text("step ", step_, ": the gradient is not finite. Try a lower optimizer.learning_rate"));
  result_.grad_norm = std::sqrt(math::exact_sum_value(squares));
  clip_coefficient_ = optim::clip_coefficient(result_.grad_norm, settings_.optimizer.clip_norm);
}

void Trainer::optimize(const ActionBuffers& buffers) {
  const auto* gradients = buffers.get<float>(Role::gradient_shard);
  const int unit = buffers.action.unit;
  auto* parameters = buffers.get<float>(Role::shard) + first_element(unit, train_.plan.optimized) -
                     first_element(unit, train_.plan.stored);
  auto* first = buffers.get<float>(Role::first_moment);
  auto* second = buffers.get<float>(Role::second_moment);
  const optim::AdamwSettings& optimizer = settings_.optimizer;
  for (const Stretch& stretch : stretches_[unit]) {
    const double weight_decay = stretch.decays ? optimizer.weight_decay : 0.0;
    optim::adamw(exec_, parameters + stretch.offset, gradients + stretch.offset,
                 first + stretch.offset, second + stretch.offset, stretch.count,
                 {step_, result_.learning_rate, weight_decay, clip_coefficient_, optimizer.beta1,
                  optimizer.beta2, optimizer.epsilon});
  }
}

StepResult Trainer::step(data::Dataset& dataset, std::int64_t step) {
  running_ = &train_;
  dataset_ = &dataset;
  step_ = step;
  first_sample_ = static_cast<std::uint64_t>(step - 1) *
                  static_cast<std::uint64_t>(settings_.training.global_batch_size);
  result_.learning_rate = optim::learning_rate(
      settings_.schedule, settings_.optimizer.learning_rate, step, settings_.training.steps);
  executor_->run(train_);
  exec_.fence();
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

void Trainer::initialize() {
  const plan::StepPlan& plan = train_.plan;
  for (int u = 0; u < decoder_.units(); ++u) {
    auto* parameters = persistent<float>(plan.parameters[u]);
    math::fill(exec_, parameters, plan.elements(u, plan.stored), 0.0f);
    for (int moments : {plan.first_moments[u], plan.second_moments[u]})
      math::fill(exec_, persistent<float>(moments), plan.elements(u, plan.optimized), 0.0f);
    for (const Piece& piece : pieces(u, plan.stored)) {
      float* target = parameters + piece.offset;
      switch (piece.parameter->initializer) {
        case model::Initializer::zeros:
          break;
        case model::Initializer::ones:
          math::fill(exec_, target, piece.count, 1.0f);
          break;
        case model::Initializer::normal:
          math::fill_normal(exec_, target, piece.count,
                            math::random_key(settings_.training.seed, piece.parameter->full_name()),
                            piece.first, piece.parameter->deviation);
          break;
      }
    }
  }
  exec_.fence();
}

/// Digest of one kind of state: the parts that only this rank has, so that each element is counted
/// once over all ranks, or all that it stores.
std::uint64_t Trainer::digest_of(const char* what, const std::vector<int>& state, plan::Part stored,
                                 plan::Part counted) {
  auto* digest = persistent<std::uint64_t>(train_.plan.sums);
  Kokkos::deep_copy(exec_, math::UnmanagedArray<std::uint64_t, Memory>(digest, 1),
                    std::uint64_t{0});
  for (int u = 0; u < decoder_.units(); ++u) {
    const float* values =
        persistent<float>(state[u]) + first_element(u, counted) - first_element(u, stored);
    for (const Piece& piece : pieces(u, counted))
      math::add_digest(exec_, values + piece.offset, piece.count,
                       math::random_key(0, piece.parameter->full_name() + " " + what), piece.first,
                       digest);
  }
  std::uint64_t value = 0;
  math::copy_to_host(exec_, digest, &value, 1);
  return value;
}

std::uint64_t Trainer::state_digest() {
  const plan::StepPlan& plan = train_.plan;
  struct State {
    const char* name;
    const std::vector<int>& buffers;
    plan::Part stored;
  };
  const State states[] = {{"parameters", plan.parameters, plan.stored},
                          {"first moment", plan.first_moments, plan.optimized},
                          {"second moment", plan.second_moments, plan.optimized}};
  std::uint64_t total = 0;
  for (const State& state : states) {
    total += digest_of(state.name, state.buffers, state.stored, plan::Part::rank);
    if (state.stored == plan::Part::rank) continue;
    // Whoever stores the same must have the same bits.
    comm::Communicator& alike =
        state.stored == plan::Part::whole ? mesh_.world() : mesh_.replicate_group();
    const std::uint64_t mine = digest_of(state.name, state.buffers, state.stored, state.stored);
    std::uint64_t first = mine;
    alike.broadcast(&first, sizeof first, 0);
    mesh_.world().agree([&] {
      require(mine == first, "rank ", mesh_.world().rank(), " holds other ", state.name,
              " than its replicas (digest ", format_hex(mine), ", not ", format_hex(first), ")");
    });
  }
  mesh_.world().sum(&total, 1);
  return total;
}

}  // namespace ostrakon::train
