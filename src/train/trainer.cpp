// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
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
#include <ostrakon/runtime/poison.hpp>
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

/// Calls work(T()) with the type T of such numbers.
template <class Work>
void with_number(Number number, const Work& work) {
  switch (number) {
    case Number::fp32:
      return work(float());
    case Number::bf16:
      return work(bf16());
    case Number::fp16:
      return work(fp16());
  }
}

/// The same for moments, which have no fp16.
template <class Work>
void with_moment(Number number, const Work& work) {
  return number == Number::bf16 ? work(bf16()) : work(float());
}

}  // namespace

plan::ModelDescription describe(const model::AnyDecoder& decoder) {
  plan::ModelDescription description = decoder.description();
  description.master_bytes = sizeof(float);
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
      decoder_(model::make_decoder(
          settings.precision.gather, settings.model,
          {settings.training.micro_batch_size, settings.training.sequence_length},
          settings.recompute)),
      description_(describe(*decoder_)),
      loss_scale_(settings.precision.loss_scale) {
  if (settings.stability.outlier_threshold > 0.0)
    outliers_.emplace(optim::OutlierSettings{settings.stability.outlier_window,
                                             settings.stability.outlier_threshold});
  const int ranks = mesh.world().size();
  settings_.parallel.leaves = settings.training.leaves();
  settings_.parallel.moments.count = optim::moments(settings.optimizer, settings.optimizer.kind);
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
  for (int u = 0; u < decoder_->units(); ++u) stretches_.push_back(stretches(u));
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
    require(decoder_->units() * micro_batches <= most_visits,
            "the plan of a step is too long: ", decoder_->units(), " units x ", micro_batches,
            " micro-batches on each rank = ", format_count(decoder_->units() * micro_batches),
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
  double peak = 0.0;
  with_number(decoder_->number(),
              [&](auto number) { peak = measure_peak_flops_of<decltype(number)>(); });
  return peak;
}

template <class T>
double Trainer::measure_peak_flops_of() {
  const std::int64_t elements = arena_->bytes() / static_cast<std::int64_t>(sizeof(T));
  const auto side =
      std::min<std::int64_t>(1024, std::llround(std::floor(std::sqrt(elements / 3.0))));
  auto* data = reinterpret_cast<T*>(arena_->data());
  math::fill(exec_, data, 3 * side * side, T(1.0f));
  const Matrix<T> a(data, side, side), b(data + side * side, side, side),
      c(data + 2 * side * side, side, side);
  double best = 0.0, total = 0.0;
  for (int repeat = 0; repeat < 1000 && total < 0.25; ++repeat) {
    exec_.fence();
    Kokkos::Timer timer;
    math::gemm<T>(exec_, math::Transpose::no, math::Transpose::yes, 1.0f, a, b, 0.0f, c);
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
  for (const model::Parameter& parameter : decoder_->parameters(unit)) {
    const std::int64_t first = std::max(parameter.offset, begin);
    const std::int64_t last = std::min(parameter.offset + parameter.elements(), end);
    if (first < last)
      found.push_back({&parameter, first - parameter.offset, first - begin, last - first});
  }
  return found;
}

std::vector<Trainer::Stretch> Trainer::stretches(int unit) const {
  // 16-bit moments are rounded by each parameter's own random numbers.
  const bool merges = settings_.parallel.moments.number == Number::fp32;
  std::vector<Stretch> merged;
  for (const Piece& piece : pieces(unit, train_.plan.optimized)) {
    // Gaps hold zeros, which no decay changes: neighbours with like decay merge over them.
    const bool decays = piece.parameter->decays;
    if (merged.empty() || !merges || merged.back().decays != decays)
      merged.push_back(
          {piece.offset, 0, decays,
           math::random_key(settings_.training.seed, piece.parameter->full_name() + " moments"),
           piece.first});
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
  executor.on(Kind::recompute, [this](const ActionBuffers& buffers) { forward(buffers); });
  executor.on(Kind::backward, [this](const ActionBuffers& buffers) { backward(buffers); });
  executor.on(Kind::loss, [this](const ActionBuffers& buffers) {
    math::add_terms(exec_, buffers.get<float>(Role::output), decoder_->leaf().rows(),
                    buffers.get<std::int64_t>(Role::sums));
  });
  executor.on(Kind::reduce_scatter,
              [this](const ActionBuffers& buffers) { reduce_scatter(buffers); });
  executor.on(Kind::accumulate, [this](const ActionBuffers& buffers) { accumulate(buffers); });
  executor.on(Kind::norm, [this](const ActionBuffers& buffers) {
    auto* gradients = buffers.get<float>(Role::gradient_shard);
    if (buffers.action.unit == spoilt_) {
      math::fill(exec_, gradients, 1, std::numeric_limits<float>::infinity());
      spoilt_ = -1;
    }
    math::add_squares(exec_, gradients, buffers.action.elements,
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
  const std::int64_t rows = decoder_->leaf().rows();
  const std::int64_t leaf = running_->plan.leaf(
      mesh_.replicate_group().rank(), mesh_.shard_group().rank(), buffers.action.micro_batch);
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
  math::copy_to_device(exec_, batch, buffers.get<std::int32_t>(Role::batch),
                       static_cast<std::size_t>(2 * rows));
}

void Trainer::forward(const ActionBuffers& buffers) {
  const std::int64_t rows = decoder_->leaf().rows();
  decoder_->forward(buffers.action.unit, exec_, unit_buffers<void>(buffers, rows), {0, rows});
}

void Trainer::backward(const ActionBuffers& buffers) {
  const model::UnitBuffers<void> unit = unit_buffers<void>(buffers, decoder_->leaf().rows());
  const int u = buffers.action.unit;
  if (!buffers.action.gradients_opened)
    clear_gaps(u, static_cast<float*>(unit.parameter_gradients));
  if (unit.lender_gradients)
    clear_gaps(description_.units[u].lender, static_cast<float*>(unit.lender_gradients));
  const auto tokens = settings_.training.global_batch_size * settings_.training.sequence_length;
  decoder_->backward(u, exec_, unit,
                     static_cast<float>(result_.loss_scale / static_cast<double>(tokens)),
                     buffers.action.gradients_opened);
}

// Padding takes part in sums over ranks and in the norm: it holds zeros, not what was there before.
void Trainer::clear_gaps(int unit, float* gradients) {
  std::int64_t end = 0;
  const auto clear_to = [&](std::int64_t begin) {
    if (begin > end) math::fill(exec_, gradients + end, begin - end, 0.0f);
  };
  for (const model::Parameter& parameter : decoder_->parameters(unit)) {
    clear_to(parameter.offset);
    end = parameter.offset + parameter.elements();
  }
  clear_to(train_.plan.padded_elements[unit]);
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
  comm::Communicator& group = communicator(buffers.action);
  const std::int64_t part = buffers.action.elements / group.size();
  const bool of_masters = buffers.action.element_bytes == train_.plan.master_bytes;
  with_number(of_masters ? Number::fp32 : decoder_->number(), [&](auto number) {
    using T = decltype(number);
    T* const whole = buffers.get<T>(Role::parameters);
    const T* mine = buffers.get<T>(Role::shard);
    if (buffers.action.converts) {
      convert(buffers.action, buffers.get<float>(Role::shard), whole + group.rank() * part, part);
      mine = whole + group.rank() * part;
    }
    group.all_gather(mine, part, whole);
  });
}

void Trainer::keep(const ActionBuffers& buffers) {
  const std::int64_t count = buffers.action.elements;
  const std::int64_t part = mesh_.shard_group().rank() % buffers.action.group_ranks;
  with_number(decoder_->number(), [&](auto number) {
    using T = decltype(number);
    math::copy(exec_, buffers.get<T>(Role::parameters) + part * count, buffers.get<T>(Role::shard),
               count);
  });
}

void Trainer::reduce_scatter(const ActionBuffers& buffers) {
  comm::Communicator& group = communicator(buffers.action);
  const std::int64_t part = buffers.action.elements / group.size();
  auto* shard = buffers.get<float>(Role::gradient_shard);
  const auto* gradients = buffers.get<float>(Role::parameter_gradients);
  if (buffers.action.buffer(Role::packed) < 0) {
    group.reduce_scatter(gradients, part, buffers.get<float>(Role::staging), shard);
    return;
  }
  with_number(settings_.parallel.reduce, [&](auto number) {
    using T = decltype(number);
    T* const packed = buffers.get<T>(Role::packed);
    convert(buffers.action, gradients, packed, buffers.action.elements);
    group.reduce_scatter(packed, part, buffers.get<T>(Role::staging), shard);
  });
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
  const std::int64_t part = buffers.action.elements / group.size();
  const bool of_masters = train_.plan.working.empty();
  with_number(of_masters ? Number::fp32 : decoder_->number(), [&](auto number) {
    using T = decltype(number);
    const plan::Part stored = of_masters ? train_.plan.stored : plan::Part::whole;
    T* const parameters =
        buffers.get<T>(Role::shard) + first_element(unit, whole) - first_element(unit, stored);
    group.all_gather(parameters + group.rank() * part, part, parameters);
  });
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
  const std::int64_t bad_losses = math::exact_sum_non_finite(losses);
  const bool training = running_->plan.purpose == Purpose::train;
  const bool bad_gradient = training && math::exact_sum_non_finite(squares) > 0;
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  if (bad_losses > 0) result_.loss = not_a_number;
  if (training) {
    result_.grad_norm = std::sqrt(math::exact_sum_value(squares)) / result_.loss_scale;
    gradient_scale_ = optim::clip_coefficient(result_.grad_norm, settings_.optimizer.clip_norm) /
                      result_.loss_scale;
    if (bad_gradient) result_.grad_norm = not_a_number;
    // With a scale that is only too large, the loss is finite and some gradient is not.
    if (scales_loss() && bad_losses == 0 && loss_scale_.update(!bad_gradient) && bad_gradient) {
      result_.skipped = text("a gradient overflowed: the loss scale goes from ", result_.loss_scale,
                             " to ", loss_scale_.value());
      return;
    }
  }
  if (bad_losses > 0 || bad_gradient) {
    std::string what = text("the loss is not finite (", bad_losses, " of ", tokens, " tokens)");
    if (bad_losses == 0) what = name_non_finite_gradient(buffers);
    if (settings_.stability.skip_non_finite) {
      if (training) result_.skipped = what;
      return;
    }
    throw AgreedError(
        text(training ? "step " : "validation after step ", step_, ": ", what,
             ". Try a lower optimizer.learning_rate",
             bad_losses > 0 ? " or a longer schedule.warmup_steps" : "",
             decoder_->number() == Number::fp16 ? ", or precision.gather = bf16" : ""));
  }
  if (!training || !outliers_) return;
  const optim::OutlierFilter::Verdict verdict = outliers_->judge(result_.loss, result_.grad_norm);
  if (verdict.skip)
    result_.skipped =
        text("an outlier: the loss is ", verdict.loss_score,
             " deviations above its mean, the gradient norm ", verdict.gradient_norm_score);
}

/// The unit nearest to the loss whose summed gradient is not finite: what backward makes of it
/// reaches those before it. All summed gradients are alive until they are used.
std::string Trainer::name_non_finite_gradient(const ActionBuffers& buffers) {
  if (runtime::poisons)
    return "a gradient is not finite";  // it looks at what the action does not declare
  auto* limbs = buffers.get<std::int64_t>(Role::sums);
  int mine = decoder_->units() - 1;
  std::int64_t count = 0;
  for (; mine >= 0; --mine) {
    Kokkos::deep_copy(exec_, math::UnmanagedArray<std::int64_t, Memory>(limbs, sums),
                      std::int64_t{0});
    math::add_squares(exec_, alive<float>(train_.plan.gradients[mine]),
                      train_.plan.elements(mine, plan::Part::rank), limbs);
    std::int64_t found[sums];
    math::copy_to_host(exec_, limbs, found, sums);
    count = math::exact_sum_non_finite(found);
    if (count > 0) break;
  }
  double last = mine;
  mesh_.world().maximum(&last, 1);
  std::string name;
  const std::string shown =
      mine < 0 || mine < static_cast<int>(last)
          ? ""
          : text("the gradient of ", train_.plan.unit_names[mine],
                 " is not finite (in the shard of rank ", mesh_.world().rank(), ", ", count,
                 " blocks of ", math::norm_block, " elements)");
  for (const std::string& one : mesh_.world().gather_texts(shown))
    if (name.empty()) name = one;
  return name;
}

void Trainer::optimize(const ActionBuffers& buffers) {
  if (!result_.skipped.empty()) return;
  const int unit = buffers.action.unit;
  const auto* gradients = buffers.get<float>(Role::gradient_shard);
  auto* parameters = buffers.get<float>(Role::shard) + first_element(unit, train_.plan.optimized) -
                     first_element(unit, train_.plan.stored);
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  with_moment(settings_.parallel.moments.number, [&](auto number) {
    using Moment = decltype(number);
    auto* first = buffers.get<Moment>(Role::first_moment);
    auto* second = buffers.get<Moment>(Role::second_moment);
    for (const Stretch& stretch : stretches_[unit]) {
      optim::UpdateStep update;
      update.step = updates_ + 1;
      update.learning_rate = result_.learning_rate;
      update.weight_decay = stretch.decays ? optimizer.weight_decay : 0.0;
      update.gradient_scale = gradient_scale_;
      update.rounding_key = stretch.rounding_key;
      update.first_element = stretch.first;
      optim::update(exec_, optimizer.kind, optimizer, update, parameters + stretch.offset,
                    gradients + stretch.offset, first ? first + stretch.offset : nullptr,
                    second ? second + stretch.offset : nullptr, stretch.count);
    }
  });
  if (buffers.action.buffer(Role::parameters) < 0) return;
  with_number(decoder_->number(), [&](auto number) {
    using T = decltype(number);
    math::convert(exec_, parameters,
                  buffers.get<T>(Role::parameters) + first_element(unit, train_.plan.optimized),
                  train_.plan.elements(unit, train_.plan.optimized));
  });
}

StepResult Trainer::step(data::Dataset& dataset, std::int64_t step) {
  running_ = &train_;
  dataset_ = &dataset;
  step_ = step;
  first_sample_ = static_cast<std::uint64_t>(step - 1) *
                  static_cast<std::uint64_t>(settings_.training.global_batch_size);
  result_.skipped.clear();
  result_.loss_scale = scales_loss() ? loss_scale_.value() : 1.0;
  result_.learning_rate = optim::learning_rate(
      settings_.schedule, settings_.optimizer.learning_rate, step, settings_.training.steps);
  executor_->run(train_);
  exec_.fence();
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

/// Into `target`, with zeros in the gaps: the part of a unit's flat parameter that this rank has.
void Trainer::write_initial_values(int unit, plan::Part part, float* target) {
  math::fill(exec_, target, train_.plan.elements(unit, part), 0.0f);
  for (const Piece& piece : pieces(unit, part)) {
    float* values = target + piece.offset;
    switch (piece.parameter->initializer) {
      case model::Initializer::zeros:
        break;
      case model::Initializer::ones:
        math::fill(exec_, values, piece.count, 1.0f);
        break;
      case model::Initializer::normal:
        math::fill_normal(exec_, values, piece.count,
                          math::random_key(settings_.training.seed, piece.parameter->full_name()),
                          piece.first, piece.parameter->deviation);
        break;
    }
  }
}

void Trainer::initialize() {
  const plan::StepPlan& plan = train_.plan;
  // Between steps the arena has room for a unit's whole gradients, and so for its whole parameters.
  auto* scratch = reinterpret_cast<float*>(arena_->data() + train_.memory.persistent_bytes);
  for (int u = 0; u < decoder_->units(); ++u) {
    write_initial_values(u, plan.stored, alive<float>(plan.parameters[u]));
    for (const std::vector<int>* moments : {&plan.first_moments, &plan.second_moments}) {
      if (moments->empty()) continue;
      with_moment(settings_.parallel.moments.number, [&](auto number) {
        using Moment = decltype(number);
        math::fill(exec_, alive<Moment>((*moments)[u]), plan.elements(u, plan.optimized),
                   Moment(0.0f));
      });
    }
    if (plan.working.empty()) continue;
    write_initial_values(u, plan::Part::whole, scratch);
    with_number(decoder_->number(), [&](auto number) {
      math::convert(exec_, scratch, alive<decltype(number)>(plan.working[u]),
                    plan.elements(u, plan::Part::whole));
    });
  }
  exec_.fence();
}

/// Digest of one kind of state: the parts that only this rank has, so that each element is counted
/// once over all ranks, or all that it stores.
std::uint64_t Trainer::digest_of(const char* what, const std::vector<int>& state, Number number,
                                 plan::Part stored, plan::Part counted) {
  auto* digest = alive<std::uint64_t>(train_.plan.sums);
  Kokkos::deep_copy(exec_, math::UnmanagedArray<std::uint64_t, Memory>(digest, 1),
                    std::uint64_t{0});
  for (int u = 0; u < decoder_->units(); ++u) {
    const std::int64_t begin = first_element(u, counted) - first_element(u, stored);
    const float* values = nullptr;
    with_number(number, [&](auto one) {
      using T = decltype(one);
      const T* found = alive<T>(state[u]) + begin;
      if constexpr (std::is_same<T, float>::value) {
        values = found;
      } else {
        auto* scratch = reinterpret_cast<float*>(arena_->data() + train_.memory.persistent_bytes);
        math::convert(exec_, found, scratch, train_.plan.elements(u, counted));
        values = scratch;
      }
    });
    for (const Piece& piece : pieces(u, counted))
      math::add_digest(exec_, values + piece.offset, piece.count,
                       math::random_key(0, piece.parameter->full_name() + " " + what), piece.first,
                       digest);
  }
  std::uint64_t value = 0;
  math::copy_to_host(exec_, digest, &value, 1);
  return value;
}

/// Throws AgreedError unless all ranks of `group` have the same digest of what they all hold.
void Trainer::require_alike(const char* what, std::uint64_t mine, comm::Communicator& group) {
  std::uint64_t first = mine;
  group.broadcast(&first, sizeof first, 0);
  mesh_.world().agree([&] {
    require(mine == first, "rank ", mesh_.world().rank(), " holds other ", what,
            " than its replicas (digest ", format_hex(mine), ", not ", format_hex(first), ")");
  });
}

std::uint64_t Trainer::state_digest() {
  const plan::StepPlan& plan = train_.plan;
  struct State {
    const char* name;
    const std::vector<int>& buffers;
    Number number;
    plan::Part stored;
  };
  const Number moments = settings_.parallel.moments.number;
  const State states[] = {{"parameters", plan.parameters, Number::fp32, plan.stored},
                          {"first moment", plan.first_moments, moments, plan.optimized},
                          {"second moment", plan.second_moments, moments, plan.optimized}};
  std::uint64_t total = 0;
  for (const State& state : states) {
    if (state.buffers.empty()) continue;
    total += digest_of(state.name, state.buffers, state.number, state.stored, plan::Part::rank);
    if (state.stored == plan::Part::rank) continue;
    // Whoever stores the same must have the same bits.
    comm::Communicator& alike =
        state.stored == plan::Part::whole ? mesh_.world() : mesh_.replicate_group();
    const std::uint64_t mine =
        digest_of(state.name, state.buffers, state.number, state.stored, state.stored);
    require_alike(state.name, mine, alike);
  }
  if (!plan.working.empty()) {
    // Copies to compute with say nothing new, but must be alike.
    const std::uint64_t mine = digest_of("working copy", plan.working, decoder_->number(),
                                         plan::Part::whole, plan::Part::whole);
    require_alike("working copies", mine, mesh_.world());
  }
  mesh_.world().sum(&total, 1);
  return total;
}

}  // namespace ostrakon::train
