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

plan::ModelDescription describe(const model::Decoder<float>& decoder) {
  plan::ModelDescription description = decoder.description();
  description.sums_bytes = sums * sizeof(std::int64_t);
  return description;
}

}  // namespace

Trainer::Trainer(const config::Settings& settings, mesh::Mesh& mesh)
    : settings_(settings),
      mesh_(mesh),
      decoder_(settings.model,
               {settings.training.micro_batch_size, settings.training.sequence_length}),
      description_(describe(decoder_)) {
  const int ranks = mesh.world().size();
  settings_.parallel.leaves = settings.training.leaves();
  const auto program = [&](Purpose purpose) {
    return runtime::make_program(
        plan::build_step_plan(description_, ranks, settings_.parallel, purpose));
  };
  train_ = program(Purpose::train);
  evaluate_ = program(Purpose::evaluate);
  export_ = program(Purpose::export_parameters);
  find_pieces();
}

const runtime::Program& Trainer::program(Purpose purpose) const {
  return purpose == Purpose::train ? train_ : purpose == Purpose::evaluate ? evaluate_ : export_;
}

std::int64_t Trainer::planned_peak_bytes() const {
  return std::max(
      {train_.memory.arena_bytes, evaluate_.memory.arena_bytes, export_.memory.arena_bytes});
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
  std::uint64_t mine[3], first[3];
  for (int p = 0; p < 3; ++p) mine[p] = first[p] = program(static_cast<Purpose>(p)).plan.hash();
  mesh_.world().broadcast(first, sizeof first, 0);
  mesh_.world().agree([&] {
    require(std::equal(mine, mine + 3, first), "rank ", mesh_.world().rank(),
            " has made another plan than rank 0 (", format_hex(mine[0]), ", not ",
            format_hex(first[0]), "): do all ranks run the same program?");
  });
}

void Trainer::allocate() {
  arena_ = std::make_unique<runtime::Arena>(planned_peak_bytes());
  executor_ = std::make_unique<runtime::Executor>(arena_->data());
  sample_.resize(static_cast<std::size_t>(settings_.training.sequence_length + 1));
  batch_.resize(static_cast<std::size_t>(2 * decoder_.leaf().rows()));
  host_sums_.resize(sums + 1);
  set_handlers();
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

void Trainer::find_pieces() {
  const plan::StepPlan& plan = train_.plan;
  for (int u = 0; u < decoder_.units(); ++u) {
    const std::int64_t stored = plan.padded_elements[u] / plan.shards;
    const std::int64_t begin = plan.shards > 1 ? mesh_.shard_group().rank() * stored : 0;
    const std::int64_t end = begin + stored;
    std::vector<Piece> pieces;
    std::vector<Stretch> stretches;
    for (const model::Parameter& parameter : decoder_.unit(u).parameters()) {
      const std::int64_t first = std::max(parameter.offset, begin);
      const std::int64_t last = std::min(parameter.offset + parameter.elements(), end);
      if (first >= last) continue;
      pieces.push_back({&parameter, first - parameter.offset, first - begin, last - first});
      // Gaps hold zeros, which no decay changes: neighbours with like decay merge over them.
      if (!stretches.empty() && stretches.back().decays == parameter.decays)
        stretches.back().count = last - begin - stretches.back().offset;
      else
        stretches.push_back({first - begin, last - first, parameter.decays});
    }
    pieces_.push_back(std::move(pieces));
    stretches_.push_back(std::move(stretches));
  }
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
  executor.on(Kind::gather, [this](const ActionBuffers& buffers) {
    mesh_.shard_group().all_gather(exec_, buffers.get<float>(Role::shard),
                                   buffers.action.elements / mesh_.shard_group().size(),
                                   buffers.get<float>(Role::parameters));
  });
  executor.on(Kind::forward, [this](const ActionBuffers& buffers) { forward(buffers); });
  executor.on(Kind::backward, [this](const ActionBuffers& buffers) { backward(buffers); });
  executor.on(Kind::loss, [this](const ActionBuffers& buffers) {
    math::add_terms(exec_, buffers.get<float>(Role::output), decoder_.leaf().rows(),
                    buffers.get<std::int64_t>(Role::sums));
  });
  executor.on(Kind::reduce_scatter,
              [this](const ActionBuffers& buffers) { reduce_scatter(buffers); });
  executor.on(Kind::accumulate, [this](const ActionBuffers& buffers) {
    math::add_to(exec_, buffers.get<float>(Role::source),
                 buffers.get<float>(Role::parameter_gradients), buffers.action.elements);
  });
  executor.on(Kind::norm, [this](const ActionBuffers& buffers) {
    math::add_squares(exec_, buffers.get<float>(Role::gradient_shard), buffers.action.elements,
                      buffers.get<std::int64_t>(Role::sums) + math::exact_sum_limbs);
  });
  executor.on(Kind::clip, [this](const ActionBuffers& buffers) { finish_sums(buffers); });
  executor.on(Kind::gather_gradients, [this](const ActionBuffers& buffers) {
    mesh_.world().all_gather(exec_, buffers.get<float>(Role::gradient_shard),
                             buffers.action.elements / mesh_.world().size(),
                             buffers.get<float>(Role::parameter_gradients));
  });
  executor.on(Kind::optimize, [this](const ActionBuffers& buffers) { optimize(buffers); });
  executor.on(Kind::visit, [this](const ActionBuffers& buffers) {
    exec_.fence();
    visitor_(buffers.action.unit, buffers.get<float>(Role::parameters));
  });
}

void Trainer::load(const ActionBuffers& buffers) {
  const std::int64_t tokens = settings_.training.sequence_length;
  const std::int64_t rows = decoder_.leaf().rows();
  const std::int64_t leaf = running_->plan.leaf(mesh_.world().rank(), buffers.action.micro_batch);
  try {
    for (std::int64_t s = 0; s < decoder_.leaf().batch; ++s) {
      dataset_->read(first_sample_ + static_cast<std::uint64_t>(leaf * decoder_.leaf().batch + s),
                     sample_.data());
      std::copy_n(sample_.begin(), tokens, batch_.begin() + s * tokens);
      std::copy_n(sample_.begin() + 1, tokens, batch_.begin() + rows + s * tokens);
    }
  } catch (const std::exception& error) {
    // The other ranks go on: this one does too, to where they next talk of how the step went.
    load_error_ = error.what();
    std::fill(batch_.begin(), batch_.end(), 0);
  }
  math::copy_to_device(exec_, batch_.data(), buffers.get<std::int32_t>(Role::batch), batch_.size());
}

model::UnitBuffers<float> Trainer::unit_buffers(const ActionBuffers& buffers) const {
  model::UnitBuffers<float> unit;
  unit.tokens = buffers.get<std::int32_t>(Role::batch);
  unit.targets = unit.tokens + decoder_.leaf().rows();
  unit.parameters = buffers.get<float>(Role::parameters);
  unit.lender_parameters = buffers.get<float>(Role::lender_parameters);
  unit.input = buffers.get<float>(Role::input);
  unit.output = buffers.get<float>(Role::output);
  unit.saved = buffers.get<float>(Role::saved);
  unit.workspace = buffers.get<float>(Role::workspace);
  unit.gradient = buffers.get<float>(Role::gradient);
  unit.parameter_gradients = buffers.get<float>(Role::parameter_gradients);
  unit.lender_gradients = buffers.get<float>(Role::lender_gradients);
  return unit;
}

void Trainer::forward(const ActionBuffers& buffers) {
  decoder_.unit(buffers.action.unit)
      .forward(exec_, unit_buffers(buffers), {0, decoder_.leaf().rows()});
}

void Trainer::backward(const ActionBuffers& buffers) {
  const model::UnitBuffers<float> unit = unit_buffers(buffers);
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

void Trainer::reduce_scatter(const ActionBuffers& buffers) {
  const std::int64_t part = buffers.action.elements / mesh_.world().size();
  auto* staging = buffers.get<float>(Role::staging);
  mesh_.world().reduce_scatter(exec_, buffers.get<float>(Role::parameter_gradients), part, staging);
  math::copy(exec_, staging, buffers.get<float>(Role::gradient_shard), part);
}

void Trainer::finish_sums(const ActionBuffers& buffers) {
  std::int64_t* losses = host_sums_.data();
  std::int64_t* squares = losses + math::exact_sum_limbs;
  std::int64_t& failures = host_sums_[sums];
  math::copy_to_host(exec_, buffers.get<std::int64_t>(Role::sums), losses, sums);
  // Carries now, so that room for them is needed once a rank, not once a term.
  math::exact_sum_carry(losses);
  math::exact_sum_carry(squares);
  failures = load_error_.empty() ? 0 : 1;
  mesh_.world().sum(host_sums_.data(), sums + 1);
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
  auto* parameters = buffers.get<float>(Role::shard);
  auto* first = buffers.get<float>(Role::first_moment);
  auto* second = buffers.get<float>(Role::second_moment);
  const optim::AdamwSettings& optimizer = settings_.optimizer;
  for (const Stretch& stretch : stretches_[buffers.action.unit]) {
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

std::string Trainer::parameter_name(int unit, const Piece& piece) const {
  return train_.plan.unit_names[unit] + "." + piece.parameter->name;
}

void Trainer::initialize() {
  const plan::StepPlan& plan = train_.plan;
  for (int u = 0; u < decoder_.units(); ++u) {
    const std::int64_t elements = plan.padded_elements[u] / plan.shards;
    auto* parameters = persistent<float>(plan.parameters[u]);
    math::fill(exec_, parameters, elements, 0.0f);
    math::fill(exec_, persistent<float>(plan.first_moments[u]), elements, 0.0f);
    math::fill(exec_, persistent<float>(plan.second_moments[u]), elements, 0.0f);
    for (const Piece& piece : pieces_[u]) {
      float* target = parameters + piece.offset;
      switch (piece.parameter->initializer) {
        case model::Initializer::zeros:
          break;
        case model::Initializer::ones:
          math::fill(exec_, target, piece.count, 1.0f);
          break;
        case model::Initializer::normal:
          math::fill_normal(exec_, target, piece.count,
                            math::random_key(settings_.training.seed, parameter_name(u, piece)),
                            piece.first, piece.parameter->deviation);
          break;
      }
    }
  }
  exec_.fence();
}

std::uint64_t Trainer::state_digest() {
  const plan::StepPlan& plan = train_.plan;
  const std::pair<const char*, const std::vector<int>*> states[] = {
      {"parameters", &plan.parameters},
      {"first moment", &plan.first_moments},
      {"second moment", &plan.second_moments}};
  auto* digest = persistent<std::uint64_t>(plan.sums);
  Kokkos::deep_copy(exec_, math::UnmanagedArray<std::uint64_t, Memory>(digest, 1),
                    std::uint64_t{0});
  for (int u = 0; u < decoder_.units(); ++u)
    for (const auto& [what, buffers] : states)
      for (const Piece& piece : pieces_[u])
        math::add_digest(exec_, persistent<float>((*buffers)[u]) + piece.offset, piece.count,
                         math::random_key(0, parameter_name(u, piece) + " " + what), piece.first,
                         digest);
  std::uint64_t value = 0;
  math::copy_to_host(exec_, digest, &value, 1);
  if (train_.plan.shards > 1) {
    mesh_.world().sum(&value, 1);
    return value;
  }
  std::uint64_t first = value;
  mesh_.world().broadcast(&first, sizeof first, 0);
  mesh_.world().agree([&] {
    require(value == first, "rank ", mesh_.world().rank(),
            " holds other parameters than rank 0 (digest ", format_hex(value), ", not ",
            format_hex(first), ")");
  });
  return value;
}

}  // namespace ostrakon::train
