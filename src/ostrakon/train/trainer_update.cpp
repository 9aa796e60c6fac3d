// SPDX-License-Identifier: Apache-2.0
// What the trainer does from a step's gradients to its updates.
#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <ostrakon/optim/muon.hpp>
#include <ostrakon/train/numbers.hpp>
#include <ostrakon/train/trainer.hpp>

namespace ostrakon::train {

using plan::Purpose;
using plan::Role;
using plan::Space;
using plan::Stream;
using runtime::ActionBuffers;

static_assert(plan::shard_alignment % math::norm_block == 0,
              "shards begin within a block of the norm");
static_assert(model::parameter_alignment % math::norm_block == 0,
              "parameters begin within a block of the norm");

// ---- what each stretch of a rank's part is updated with

std::vector<Trainer::Stretch> Trainer::stretches(int unit) const {
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  std::vector<Stretch> found;
  const plan::FlatRange trained = train_.plan.trained(unit);
  if (trained.empty()) return found;
  // Whole matrices stay by themselves, and with 16-bit moments all parameters: those are rounded by
  // each one's own random numbers.
  const auto merge = [&](const Stretch& one, const Stretch& other) {
    return settings_.parallel.moments.number == Number::fp32 &&
           one.rule != optim::OptimizerKind::muon && one.rule == other.rule &&
           one.treatment.learning_rate == other.treatment.learning_rate &&
           one.treatment.weight_decay == other.treatment.weight_decay;
  };
  for (const Piece& piece : pieces(trained.first, train_.plan.layouts.update.divided)) {
    const model::Parameter& parameter = *piece.parameter;
    Stretch next;
    next.parameter = &parameter;
    next.rule = optim::rule_of(optimizer, parameter);
    next.treatment = optim::treatment_of(optimizer.parameters, parameter, optimizer.learning_rate,
                                         optimizer.weight_decay);
    next.offset = piece.offset;
    next.count = piece.count;
    next.second = piece.offset - whole_matrices_before(unit, piece.offset);
    next.rounding_key =
        math::random_key(settings_.training.seed, parameter.full_name() + " moments");
    next.first = piece.first;
    // Gaps hold zeros, which no update changes: neighbours merge over them.
    if (!found.empty() && merge(found.back(), next))
      found.back().count = next.offset + next.count - found.back().offset;
    else
      found.push_back(next);
  }
  return found;
}

/// Elements of whole matrices among the first `offset` of those that this rank updates.
std::int64_t Trainer::whole_matrices_before(int unit, std::int64_t offset) const {
  const plan::StepPlan& plan = train_.plan;
  const std::int64_t begin =
      plan.first_element(plan.trained(unit).first, plan.layouts.update.divided, rank_);
  std::int64_t elements = 0;
  for (const plan::WholeMatrix& matrix : plan.units[unit].whole_matrices)
    elements += std::max<std::int64_t>(
        0, std::min(matrix.end(), begin + offset) - std::max(matrix.offset, begin));
  return elements;
}

optim::UpdateStep Trainer::update_step(const Stretch& stretch) const {
  optim::UpdateStep update;
  update.step = updates_ + 1;
  update.learning_rate = optim::learning_rate(settings_.schedule, stretch.treatment.learning_rate,
                                              step_, settings_.training.steps);
  update.weight_decay = stretch.treatment.weight_decay;
  update.gradient_scale = gradient_scale_;
  update.rounding_key = stretch.rounding_key;
  update.first_element = stretch.first;
  return update;
}

// ---- sums over micro-batches and ranks

void Trainer::begin(const ActionBuffers& buffers) {
  load_error_.clear();
  spoilt_sum_ = {};
  Kokkos::deep_copy(
      exec_,
      math::UnmanagedArray<std::int64_t, Memory>(buffers.get<std::int64_t>(Role::sums), step_sums),
      std::int64_t{0});
  if (auto* on_host = buffers.get<std::int64_t>(Role::host_sums))
    std::fill_n(on_host, step_sums, std::int64_t{0});
}

void Trainer::accumulate(const ActionBuffers& buffers) {
  const auto* source = buffers.get<float>(Role::source);
  auto* sum = buffers.get<float>(Role::parameter_gradients);
  // Other streams may be threads that Kokkos does not know. Their memory is the host's.
  if (buffers.action.stream == Stream::compute)
    math::add_to(exec_, source, sum, buffers.action.elements);
  else
    math::host::add_to(source, sum, buffers.action.elements);
}

void Trainer::norm(const ActionBuffers& buffers) {
  const auto* gradients =
      find<float>(buffers, Role::gradient_shard, running_->plan.layouts.gradient.divided);
  const std::int64_t count = buffers.action.elements;
  if (buffers.action.stream != Stream::host) {
    math::add_squares(exec_, gradients, count,
                      buffers.get<std::int64_t>(Role::sums) + math::exact_sum_limbs);
    return;
  }
  std::int64_t* const squares = buffers.get<std::int64_t>(Role::host_sums) + math::exact_sum_limbs;
  const std::int64_t before = math::exact_sum_non_finite(squares);
  math::host::add_squares(gradients, count, squares);
  // Updated early, the gradients are not there any more when somebody asks.
  const std::int64_t more = math::exact_sum_non_finite(squares) - before;
  if (more > 0 && buffers.action.unit > spoilt_sum_.unit) spoilt_sum_ = {buffers.action.unit, more};
}

// ---- how the step went

void Trainer::finish_sums(const ActionBuffers& buffers) {
  const bool training = running_->plan.purpose == Purpose::train;
  auto* losses = buffers.get<std::int64_t>(Role::host_sums);
  std::int64_t* squares = losses + math::exact_sum_limbs;
  std::int64_t& failures = losses[step_sums];
  // Where updates are on the host, the squares were summed there.
  if (!training || train_.plan.layouts.update.space == Space::device)
    std::fill_n(losses, step_sums, std::int64_t{0});
  std::int64_t on_device[step_sums];
  math::copy_to_host(exec_, buffers.get<std::int64_t>(Role::sums), on_device, step_sums);
  // Carries now, so that room for them is needed once a rank, not once a term.
  for (std::int64_t* sum : {losses, squares, on_device, on_device + math::exact_sum_limbs})
    math::exact_sum_carry(sum);
  for (int i = 0; i < step_sums; ++i) losses[i] += on_device[i];
  failures = load_error_.empty() ? 0 : 1;
  mesh_.world().sum(losses, step_sums + 1);
  if (failures > 0) mesh_.world().agree([&] { require(load_error_.empty(), load_error_); });

  const std::int64_t tokens =
      settings_.training.global_batch_size * settings_.training.sequence_length;
  const std::int64_t bad_losses = math::exact_sum_non_finite(losses);
  const std::string bad_loss =
      bad_losses == 0 ? ""
                      : text("the loss is not finite (", bad_losses, " of ", tokens, " tokens)");
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  result_.loss =
      bad_losses > 0 ? not_a_number : math::exact_sum_value(losses) / static_cast<double>(tokens);
  if (!training) {
    if (bad_losses > 0 && !settings_.stability.skip_non_finite)
      throw AgreedError(failure(text("validation after step ", step_), bad_loss, true));
    return;
  }
  const bool bad_gradient = math::exact_sum_non_finite(squares) > 0;
  result_.grad_norm =
      bad_gradient ? not_a_number : std::sqrt(math::exact_sum_value(squares)) / result_.loss_scale;
  if (diagnoses_)
    diagnosis_ = name_origin(buffers);
  else
    judge(bad_loss, bad_gradient);
}

/// Decides, alike on all ranks, whether the step is to update anything, and with which scale.
void Trainer::judge(const std::string& bad_loss, bool bad_gradient) {
  const auto leave_out = [&](std::string why) {
    leaves_out_ = true;
    result_.skipped = std::move(why);
  };
  // With a scale that is only too large, the loss is finite and some gradient is not.
  if (config::scales_loss(settings_) && bad_loss.empty() && loss_scale_.update(!bad_gradient) &&
      bad_gradient)
    return leave_out(text("a gradient overflowed: the loss scale goes from ",
                          static_cast<std::int64_t>(result_.loss_scale), " to ",
                          static_cast<std::int64_t>(loss_scale_.value())));
  if (!bad_loss.empty()) {
    if (!settings_.stability.skip_non_finite)
      throw AgreedError(failure(text("step ", step_), bad_loss + what_is_left(), true));
    return leave_out(bad_loss);
  }
  if (updates_early()) {
    if (bad_gradient)
      throw AgreedError(
          failure(text("step ", step_), name_spoilt_sum(spoilt_sum_) + what_is_left(), false));
    return;
  }
  if (bad_gradient) {
    leaves_out_ = bad_gradient_ = true;
    return;
  }
  gradient_scale_ = optim::clip_coefficient(result_.grad_norm, settings_.optimizer.clip_norm) /
                    result_.loss_scale;
  if (!outliers_) return;
  const optim::OutlierFilter::Verdict verdict = outliers_->judge(result_.loss, result_.grad_norm);
  if (!verdict.skip) return;
  const double threshold = settings_.stability.outlier_threshold;
  std::vector<std::string> beyond;
  if (verdict.loss_score > threshold) beyond.push_back(text("the loss is ", verdict.loss_score));
  if (verdict.gradient_norm_score > threshold)
    beyond.push_back(text("the gradient norm is ", verdict.gradient_norm_score));
  leave_out(text("an outlier: ", config::join(beyond, " and ", " and "),
                 " deviations above its mean, more than training.skip_outliers = ", threshold));
}

/// With what may help. Before the first update no learning rate does.
std::string Trainer::failure(const std::string& when, const std::string& what, bool of_loss) const {
  std::vector<std::string> advice;
  if (updates_ > 0) advice.push_back("a lower optimizer.learning_rate");
  if (updates_ > 0 && of_loss) advice.push_back("a longer schedule.warmup_steps");
  if (decoder_->number() == Number::fp16)
    advice.push_back("precision.gather = bf16");
  else if (settings_.parallel.reduce == Number::fp16 && !of_loss)
    advice.push_back("precision.reduce = bf16");
  return text(when, ": ", what,
              advice.empty() ? "" : ". Try " + config::join(advice, ", ", " or "));
}

/// What to say of parameters where a step of training fails; empty where none has changed.
std::string Trainer::what_is_left() const {
  if (!updates_early()) return "";
  return "; parameters have changed, as updates on the host begin beside backward where "
         "optimizer.clip_norm = 0: weights are not written";
}

/// Notes where gradients of one micro-batch (or null) are not finite.
void Trainer::inspect(const plan::Action& action, int unit, int distance, const float* gradients) {
  if (gradients == nullptr || (origin_ && origin_->distance <= distance)) return;
  const std::int64_t elements = train_.plan.padded(train_.plan.trained(unit));
  if (count_non_finite(gradients, elements, Space::device) > 0)
    origin_ = {distance, action.micro_batch};
}

std::int64_t Trainer::count_non_finite(const float* values, std::int64_t count, Space space) const {
  constexpr std::int64_t most = 65536;
  std::vector<float> copy(static_cast<std::size_t>(std::min(count, most)));
  std::int64_t found = 0;
  for (std::int64_t begin = 0; begin < count; begin += most) {
    const std::int64_t some = std::min(most, count - begin);
    const float* seen = values + begin;
    if (space == Space::device) {
      math::copy_to_host(exec_, seen, copy.data(), static_cast<std::size_t>(some));
      seen = copy.data();
    }
    found += std::count_if(seen, seen + some, [](float value) { return !std::isfinite(value); });
  }
  return found;
}

/// Which unit's gradient is not finite on which ranks: of several units the one nearest to the
/// loss, as what backward makes of it reaches those before it.
std::string Trainer::name_origin(const ActionBuffers& buffers) {
  double nearest = origin_ ? origin_->distance : std::numeric_limits<double>::infinity();
  mesh_.world().minimum(&nearest, 1);
  if (!std::isfinite(nearest)) return name_spoilt_sum(find_spoilt_sum(buffers));
  const auto distance = static_cast<int>(nearest);
  const int computed = decoder_->units() - 1 - distance / 2;
  const int unit = distance % 2 == 0 ? computed : description_.units[computed].tied_to;
  const bool mine = origin_ && origin_->distance == distance;
  std::string ranks;
  int more = -4;  // so many are named
  for (const std::string& rank : mesh_.world().gather_texts(
           mine ? text("rank ", mesh_.world().rank(), " (micro-batch ", origin_->micro_batch, ")")
                : ""))
    if (!rank.empty() && ++more <= 0) ranks += (ranks.empty() ? "" : ", ") + rank;
  return text("the gradient of ", train_.plan.units[unit].name, " is not finite on ", ranks,
              more > 0 ? text(" and ", more, " more") : "");
}

Trainer::SpoiltSum Trainer::find_spoilt_sum(const ActionBuffers& buffers) const {
  for (int u = decoder_->units() - 1; u >= 0; --u) {
    const plan::StepPlan& plan = train_.plan;
    const int buffer = plan.units[u].gradients;
    if (buffer < 0) continue;
    const plan::Buffer& gradients = plan.buffers[buffer];
    const plan::Spans& divided = plan.layouts.gradient.divided;
    const std::int64_t first = plan.offset_in(gradients, plan.trained(u).first, divided, rank_);
    const std::int64_t count =
        count_non_finite(buffers.at<float>(buffer) + first, plan.elements(plan.trained(u), divided),
                         gradients.space);
    if (count > 0) return {u, count};
  }
  return {};
}

/// The same of sums, where the gradients of all micro-batches are finite, or no more known.
std::string Trainer::name_spoilt_sum(const SpoiltSum& mine) {
  double last = mine.unit;
  mesh_.world().maximum(&last, 1);
  if (last < 0.0) return "a gradient is not finite";
  const auto unit = static_cast<int>(last);
  std::string shards;
  int more = 0;
  for (const std::string& one : mesh_.world().gather_texts(
           mine.unit == unit ? text(mine.elements, mine.elements == 1 ? " element" : " elements",
                                    " in the shard of rank ", mesh_.world().rank())
                             : "")) {
    if (one.empty()) continue;
    if (shards.empty())
      shards = one;
    else
      ++more;
  }
  return text("the gradient of ", train_.plan.units[unit].name,
              " is not finite when summed over micro-batches and ranks (", shards,
              more > 0 ? text(", more in ", more, more == 1 ? " other" : " others") : "", ")");
}

// ---- the update

void Trainer::gather_gradients(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  comm::Communicator& group = communicator(action);
  const Role whole = Role::parameter_gradients;
  const Role source = action.buffer(Role::gradient_shard) >= 0 ? Role::gradient_shard : whole;
  group.all_gather(find<float>(buffers, source, parts_of(buffers, whole)),
                   action.elements / group.size(),
                   find<float>(buffers, whole, gathered_in(buffers, whole)));
}

void Trainer::direction(const ActionBuffers& buffers) {
  if (leaves_out_) return;
  const bool on_host = buffers.action.stream == Stream::host;
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  const plan::Spans& ours = train_.plan.layouts.update.divided;
  auto* gradients = find<float>(buffers, Role::gradient_shard, ours);
  with_moment(settings_.parallel.moments.number, [&](auto number) {
    using Moment = decltype(number);
    auto* momentum = find<Moment>(buffers, Role::first_moment, ours);
    for (const Stretch& stretch : stretches_[buffers.action.unit]) {
      if (stretch.rule != optim::OptimizerKind::muon) continue;
      const optim::UpdateStep update = update_step(stretch);
      float* const at = gradients + stretch.offset;
      if (on_host)
        optim::host::muon_direction(optimizer, update, at, momentum + stretch.offset,
                                    stretch.count);
      else
        optim::muon_direction(exec_, optimizer, update, at, momentum + stretch.offset,
                              stretch.count);
    }
  });
}

void Trainer::orthogonalize(const ActionBuffers& buffers) {
  if (leaves_out_) return;
  auto* whole = find<float>(buffers, Role::parameter_gradients, {});
  auto* mine = find<float>(buffers, Role::gradient_shard, train_.plan.layouts.update.divided);
  for (const Stretch& stretch : stretches_[buffers.action.unit]) {
    if (stretch.rule != optim::OptimizerKind::muon) continue;
    const model::Parameter& parameter = *stretch.parameter;
    float* const matrix = whole + parameter.offset;
    optim::orthogonalize(exec_, Matrix<float>(matrix, parameter.shape[0], parameter.shape[1]),
                         settings_.optimizer.muon_iterations, buffers.get<void>(Role::workspace));
    if (mine != nullptr)
      math::copy(exec_, matrix + stretch.first, mine + stretch.offset, stretch.count);
  }
}

void Trainer::optimize(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  const plan::Spans& ours = train_.plan.layouts.update.divided;
  const bool on_host = action.stream == Stream::host;
  const optim::OptimizerSettings& optimizer = settings_.optimizer;
  auto* masters = find<float>(buffers, Role::shard, ours);
  const auto* gradients = find<float>(buffers, Role::gradient_shard, ours);
  if (!leaves_out_)
    with_moment(settings_.parallel.moments.number, [&](auto number) {
      using Moment = decltype(number);
      auto* first = find<Moment>(buffers, Role::first_moment, ours);
      auto* second = buffers.get<Moment>(Role::second_moment);
      for (const Stretch& stretch : stretches_[action.unit]) {
        const optim::UpdateStep update = update_step(stretch);
        float* const x = masters + stretch.offset;
        const float* const gradient = gradients + stretch.offset;
        Moment* const first_at = first ? first + stretch.offset : nullptr;
        Moment* const second_at = second ? second + stretch.second : nullptr;
        if (stretch.rule == optim::OptimizerKind::muon) {
          const std::vector<std::int64_t>& shape = stretch.parameter->shape;
          if (on_host)
            optim::host::muon_apply(optimizer, update, shape[0], shape[1], x, gradient,
                                    stretch.count);
          else
            optim::muon_apply(exec_, optimizer, update, shape[0], shape[1], x, gradient,
                              stretch.count);
        } else if (on_host) {
          optim::host::update(stretch.rule, optimizer, update, x, gradient, first_at, second_at,
                              stretch.count);
        } else {
          optim::update(exec_, stretch.rule, optimizer, update, x, gradient, first_at, second_at,
                        stretch.count);
        }
      }
    });
  // Also of a step that is left out: what is copied on from there must hold something.
  if (action.buffer(Role::parameters) < 0) return;
  with_number(decoder_->number(), [&](auto number) {
    auto* copy = find<decltype(number)>(buffers, Role::parameters, ours);
    const std::int64_t count = train_.plan.elements(train_.plan.trained(action.unit), ours);
    if (on_host)
      math::host::convert(masters, copy, count);
    else
      math::convert(exec_, masters, copy, count);
  });
}

/// In place: of the masters, or of the copies to compute with.
void Trainer::gather_updates(const ActionBuffers& buffers) {
  const plan::Action& action = buffers.action;
  comm::Communicator& group = communicator(action);
  const std::int64_t count = action.elements / group.size();
  // The buffer may have more than what the span has parts of.
  plan::Spans part = train_.plan.layouts.update.divided;
  while (part.innermost() != action.span) part = part.outer();
  with_number(number_of(action), [&](auto number) {
    using T = decltype(number);
    group.all_gather(find<T>(buffers, Role::shard, part), count,
                     find<T>(buffers, Role::shard, part.outer()));
  });
}

}  // namespace ostrakon::train
